"""What is handed out: values, classes, counts."""
