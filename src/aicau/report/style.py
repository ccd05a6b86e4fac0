"""How a report looks."""

STYLE = """
:root{color-scheme:light;--ink:#1d2433;--soft:#5b6577;--line:#dfe3ea;--paper:#fff;--back:#f5f6f9;--blue:#0072b2}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:15px/1.5 system-ui,"Segoe UI",Roboto,"Helvetica Neue",Arial,
sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 20px 48px}
h1{font-size:28px;margin:0;letter-spacing:-.01em}
h2{font-size:17px;margin:0 0 8px}
header p{color:var(--soft);margin:2px 0 18px}
code{font:13px ui-monospace,"DejaVu Sans Mono",Menlo,Consolas,monospace;background:#e9ecf2;border-radius:4px;
padding:1px 5px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(120px,1fr));gap:12px;margin:0 0 16px}
.tiles div,article,.batch{background:var(--paper);border:1px solid var(--line);border-radius:10px}
.tiles div{padding:10px 14px}
dt{color:var(--soft);font-size:13px}
dd{margin:0;font-size:23px;font-weight:600;font-variant-numeric:tabular-nums}
.grid{display:grid;grid-template-columns:1fr 1fr;gap:16px}
article{padding:16px 18px}
article p,.batch p{color:var(--soft);font-size:13.5px;margin:8px 0 0}
.w2{grid-column:span 2}
svg{display:block;width:100%;height:auto}
.none{padding:48px 0;text-align:center}
.batch{margin-top:16px;padding:16px 18px}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}
th{text-align:left;font-weight:600;color:var(--soft);border-bottom:2px solid var(--line);padding:6px 10px;
white-space:nowrap}
td{padding:7px 10px 0;vertical-align:top;white-space:nowrap}
.why td{border-bottom:1px solid var(--line);padding:1px 10px 7px;color:var(--soft);white-space:normal}
.pending{color:#a85d00}.completed{color:#007a5a}.failed,.abandoned{color:#b3261e}
@media(max-width:820px){.grid{grid-template-columns:1fr}.w2{grid-column:auto}}
@media print{body{background:#fff}main{max-width:none}}
"""
