"""The paper's figures and claims."""
