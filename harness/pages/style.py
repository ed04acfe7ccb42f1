"""The page's one style and one script, and the policy that allows nothing else.

Both are known by their hashes, and there is no attribute for a style or a handler: whatever text a
model, an environment or a user wrote could not run or load even if it became markup.
"""

from __future__ import annotations

import base64
import hashlib

STYLE = """
:root { color-scheme: light; --ink: #1f2328; --soft: #656d76; --line: #d9dee3; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 90rem; padding: 1.2rem 1.5rem 4rem; color: var(--ink);
  background: #fff; font: 14px/1.5 system-ui, sans-serif; }
h1, h2, h3, p, ol, figure, table { margin: 0; }
h1 { font-size: 1.5rem; } h1 small { color: var(--soft); font-weight: 400; }
h2 { font-size: 1rem; display: inline; } h3 { font-size: .85rem; font-weight: 600; }
table { border-collapse: collapse; font-size: .85rem; }
th { text-align: left; color: var(--soft); font-weight: 400; }
th, td { padding: .1rem .9rem .1rem 0; vertical-align: top; }
td { font-variant-numeric: tabular-nums; overflow-wrap: break-word; }
td:last-child { overflow-wrap: anywhere; }
th, td:first-child { white-space: nowrap; }
code { font: 12px ui-monospace, monospace; }
a { color: #0b5cad; }
.verdict { margin: .7rem 0; padding: .5rem .8rem; border-left: 6px solid; font-weight: 600; }
.accepted { border-color: #2f7fd0; background: #eef5fd; }
.rejected { border-color: #b42318; background: #fdecea; color: #7a1a12; }
.figures { display: flex; flex-wrap: wrap; gap: .3rem 1.8rem; margin: .5rem 0 .8rem; }
.figures div { font-size: .8rem; color: var(--soft); }
.figures strong { display: block; font-size: 1.15rem; color: var(--ink); font-weight: 600; }
.top { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; align-items: flex-start; }
.top figure svg { max-width: 100%; height: auto; }
.top > div { flex: 1 1 20rem; }
summary { cursor: pointer; }
.folds { display: flex; flex-wrap: wrap; gap: .1rem 1.3rem; margin-top: .6rem; }
.folds details[open] { flex-basis: 100%; }
.top table { margin-top: .5rem; }
.more summary { color: #0b5cad; font-size: .85rem; }
.no { color: #b42318; font-weight: 600; }
.bar { position: sticky; top: 0; z-index: 1; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem;
  align-items: center; margin: 1rem -1.5rem; padding: .45rem 1.5rem; background: #f6f8fa;
  border-block: 1px solid var(--line); font-size: .8rem; color: var(--soft); }
.bar b, .bar i { padding: .1rem .35rem; }
[hidden] { display: none !important; }
.problem { border-top: 1px solid var(--line); padding: .7rem 0; }
.problem > summary { display: flex; flex-wrap: wrap; gap: .2rem 1rem; align-items: baseline; }
.problem > summary::before { content: "\\25B8"; color: var(--soft); }
.problem[open] > summary::before { content: "\\25BE"; }
.asked { color: var(--soft); flex: 1 1 12rem; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; }
.problem > summary svg { align-self: center; flex: none; }
.told { color: var(--soft); font-size: .85rem; margin-bottom: .8rem; }
.given { margin: .4rem 0 .6rem 1.2rem; }
.given pre { margin: .3rem 0; padding: .5rem; background: #f6f8fa; white-space: pre-wrap;
  overflow-wrap: anywhere; font: 12px/1.45 ui-monospace, monospace; }
.attempts { display: grid; gap: .6rem; margin-left: 1.2rem;
  grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); }
.attempts.wide { grid-template-columns: repeat(auto-fill, minmax(min(27rem, 100%), 1fr)); }
article { border: 1px solid var(--line); border-radius: 5px; padding: .4rem .6rem .5rem;
  min-width: 0; }
article h3 { display: flex; justify-content: space-between; gap: .5rem; }
article > p { color: var(--soft); font-size: .75rem; }
.turns { list-style: none; padding: 0; }
.turns li { position: relative; margin-top: .35rem; padding-left: 1.6rem; min-height: 1.3rem; }
.turns li > u { position: absolute; left: 0; top: .1rem; text-decoration: none; font-size: .7rem;
  color: var(--soft); }
.tokens { white-space: pre-wrap; overflow-wrap: anywhere; unicode-bidi: isolate;
  font: 12.5px/1.65 ui-monospace, monospace; }
.tokens i, .bar i { font-style: normal; color: #6e7781; }
.tokens b, .bar b { font-weight: 400; color: #111; border-radius: 2px; padding-block: 1px;
  box-shadow: inset 0 -1px #b6bec7; }
.tokens b + b { margin-left: 1px; }
.words .tokens i + i, .words .tokens b + b, .words .tokens b + i { margin-left: .7ch; }
.tokens s { text-decoration: none; color: #b42318; }
b.p1, b.p2, b.p3, b.p4, b.p5 { box-shadow: inset 0 -2px #2f7fd0; }
b.n1, b.n2, b.n3, b.n4, b.n5 { box-shadow: inset 0 2px #b85c00; }
.p1 { background: #e6f0fb; } .p2 { background: #cbe0f7; } .p3 { background: #a9cdf1; }
.p4 { background: #84b7ea; } .p5 { background: #5b9fe0; }
.n1 { background: #fdf0e2; } .n2 { background: #fbdfc2; } .n3 { background: #f9c795; }
.n4 { background: #f4aa62; } .n5 { background: #e98a30; }
.earned { font-size: .72rem; color: #0b5cad; margin-left: .4rem; font-style: normal; }
.lost { color: #a85400; }
.call { display: block; margin: .2rem 0; padding: .1rem .5rem; border-left: 3px solid #8250df;
  background: #f8f5ff; font: 12px/1.5 ui-monospace, monospace; white-space: pre-wrap;
  overflow-wrap: anywhere; unicode-bidi: isolate; }
.call.failed { border-color: #b42318; background: #fdf3f2; }
.read { display: block; font-size: .8rem; color: var(--soft); unicode-bidi: isolate;
  overflow-wrap: anywhere; }
bdi { overflow-wrap: anywhere; }
@media print { .bar { position: static; } }
"""

SCRIPT = """
'use strict';
(() => {
  const bar = document.querySelector('.controls');
  const [order, only] = bar.querySelectorAll('select');
  const [open, close] = bar.querySelectorAll('button');
  const count = bar.querySelector('output');
  const value = (article, key) => parseFloat(article.dataset[key]);
  const orders = {
    attempt: (a, b) => value(a, 'g') - value(b, 'g'),
    best: (a, b) => value(b, 'r') - value(a, 'r') || value(a, 'g') - value(b, 'g'),
    worst: (a, b) => value(a, 'r') - value(b, 'r') || value(a, 'g') - value(b, 'g'),
    longest: (a, b) => value(b, 'l') - value(a, 'l') || value(a, 'g') - value(b, 'g'),
  };
  const filters = {
    all: () => true,
    above: a => value(a, 'd') > 0,
    below: a => value(a, 'd') < 0,
    cut: a => a.dataset.s !== '0',
  };
  const problems = [...document.querySelectorAll('.problem')];
  const update = () => {
    let shown = 0;
    for (const problem of problems) {
      const list = problem.querySelector('.attempts');
      const articles = [...list.children].sort(orders[order.value]);
      list.append(...articles);
      for (const article of articles) article.hidden = !filters[only.value](article);
      const here = articles.filter(article => !article.hidden).length;
      problem.hidden = !here;
      shown += here;
    }
    count.textContent = shown + ' episodes';
  };
  const fold = state => { for (const problem of problems) problem.open = state; };
  order.onchange = only.onchange = update;
  open.onclick = () => fold(true);
  close.onclick = () => fold(false);
  bar.hidden = false;
  update();
})();
"""


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


POLICY = (
    f"default-src 'none'; style-src {_hash(STYLE)}; script-src {_hash(SCRIPT)}; "
    "base-uri 'none'; form-action 'none'"
)
"""The page's Content-Security-Policy."""
