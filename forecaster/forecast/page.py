"""What every page that we write has around it: no script, no other file, light and dark, on any screen.

What comes in: a title, a body, and the style of what is only there. What goes out: HTML text.
"""

from __future__ import annotations

from html import escape

_STYLE = """
:root{color-scheme:light dark;--ink:#24292f;--paper:#fff;--soft:#f3f5f7;--edge:#d0d7de;
--blue:#0067a8;--orange:#c4520a;--green:#00805c;--purple:#a8508a;--brown:#8a6d00}
@media (prefers-color-scheme:dark){:root{--ink:#dde2e8;--paper:#14181c;--soft:#1f252b;--edge:#3d454d;
--blue:#56b4e9;--orange:#f0935a;--green:#35c495;--purple:#dd92ba;--brown:#d9b93b}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);max-width:1140px;
margin:1.5rem auto;padding:0 1rem;overflow-wrap:break-word}
h1{font-size:1.6rem;line-height:1.25;margin:.2rem 0}h2{font-size:1.2rem;margin:1.8rem 0 .4rem}
h3{font-size:1rem;margin:1.1rem 0 .3rem}small{font-weight:normal;opacity:.75}
p{max-width:62rem;margin:.4rem 0}figure{margin:.4rem 0}figcaption{font-size:.85rem;opacity:.85}
svg{max-width:100%;height:auto}
.tick{font-size:11px;fill:var(--ink);fill-opacity:.8}.name{font-size:12.5px;fill:var(--ink)}
.rule{stroke:var(--ink);stroke-opacity:.25;stroke-width:1}
"""
# Colours follow Okabe and Ito (2008), darkened or lightened until a line of each stands out from paper.


def page(title: str, style: str, body: str) -> str:
    """Returns a whole page.

    Args:
        title: as plain text.
        style: rules beside those that all pages share, whose colours are --ink, --paper, --soft,
            --edge, --blue, --orange, --green, --purple and --brown.
        body: as HTML.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}{style}</style></head>"
        f"<body>{body}</body></html>\n"
    )
