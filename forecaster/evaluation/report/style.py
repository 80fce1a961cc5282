"""The style of a report, beside that of every page."""

STYLE = """
header p{opacity:.85}
nav{display:flex;flex-wrap:wrap;gap:.2rem .9rem;margin:1rem 0;font-size:.9rem}
a{color:var(--blue)}
section{scroll-margin-top:1rem}section>h2{border-top:1px solid var(--edge);padding-top:1rem}
#verdict{background:var(--soft);border:1px solid var(--edge);border-left:.5rem solid var(--edge);
border-radius:.4rem;padding:.9rem 1.1rem;margin:1rem 0}
#verdict>h2{border:0;padding:0;margin:0 0 .3rem;font-size:1.25rem;line-height:1.35}
#verdict.good{border-left-color:var(--blue)}#verdict.bad{border-left-color:var(--orange)}
#verdict ul{margin:.2rem 0 .3rem;padding-left:1.2rem}#verdict li{max-width:62rem;margin:.25rem 0}
.sign{font-weight:700}.good .sign{color:var(--blue)}.bad .sign{color:var(--orange)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,8.5rem),1fr));gap:.7rem;
margin:.8rem 0}
.tiles div{background:var(--paper);border:1px solid var(--edge);border-radius:.4rem;padding:.5rem .8rem;
display:flex;flex-direction:column}
.tiles span,.tiles small{font-size:.85rem;opacity:.85}
.tiles strong{font-size:1.5rem;line-height:1.3;font-variant-numeric:tabular-nums}
.grid{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,20rem),1fr));gap:1rem 1.4rem;
align-items:start}
.two{grid-template-columns:repeat(auto-fill,minmax(min(100%,27rem),1fr))}
.grid>*{min-width:0;margin:0}.grid h3{margin:.3rem 0;font-size:.95rem}
.grid svg{width:100%;max-width:30rem}
.key{display:flex;flex-wrap:wrap;gap:.1rem 1.1rem;font-size:.9rem}
.key span{display:inline-flex;align-items:center;gap:.4rem}
.wide{overflow-x:auto;margin:.5rem 0;max-width:100%;background:
linear-gradient(to right,var(--paper) 40%,transparent) 0/2.5rem 100% no-repeat local,
linear-gradient(to left,var(--paper) 40%,transparent) 100%/2.5rem 100% no-repeat local,
linear-gradient(to right,var(--edge),transparent) 0/.8rem 100% no-repeat,
linear-gradient(to left,var(--edge),transparent) 100%/.8rem 100% no-repeat}
table{border-collapse:collapse;font-size:.9rem}
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--edge);text-align:left;vertical-align:top}
thead th{font-weight:600;white-space:nowrap}tbody th{font-weight:400;white-space:nowrap}
.numbers td,.numbers th:not(:first-child){text-align:right;font-variant-numeric:tabular-nums;
white-space:nowrap}
.scores tbody tr:first-child{font-weight:600}
.scores th:first-child{position:sticky;left:0;background:var(--paper)}
.findings{padding-left:1.2rem}.findings li{max-width:62rem;margin:.4rem 0}
.findings small{display:block}
details{margin:.5rem 0}summary{cursor:pointer}
dl{display:grid;grid-template-columns:minmax(6rem,max-content) minmax(0,1fr);gap:.25rem 1rem;
margin:.5rem 0}
dt{font-weight:600}dd{margin:0;overflow-wrap:anywhere}
pre{overflow-x:auto;background:var(--soft);padding:.7rem;border-radius:.4rem;font-size:.8rem}
.none{opacity:.85}
@media print{:root{--ink:#000;--paper:#fff;--soft:#fff;--edge:#999;--blue:#0067a8;--orange:#c4520a;
--green:#00805c;--purple:#a8508a;--brown:#8a6d00}
body{font-size:11px;margin:0}nav{display:none}figure,tr,.tiles{break-inside:avoid}
h2,h3{break-after:avoid}details::details-content{content-visibility:visible;display:block}
.grid{grid-template-columns:repeat(3,1fr)}.wide{overflow:visible}}
"""
"""Rules for the classes that `page.py` and `tables.py` write."""
