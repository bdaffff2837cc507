"""Texts that tokenizers get wrong: languages, emoji, white space, numbers, code, repetition, odd characters."""

# ruff: noqa: RUF001
TEXTS = [
    "", " ", "a", "Hello, world!", " leading", "trailing ", "  two  spaces  ", "I'll don't WE'RE it's 'tis ’s O'Neill",
    "The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX!", "camelCaseWord snake_case_word kebab-case XMLHttpRequest",
    # languages
    "Привет, как дела? Ёжик — это не ёлка.", "γειά σου Κόσμε", "مرحبا بالعالم، كيف حالك؟", "שלום עולם", "नमस्ते दुनिया, क्षत्रिय",
    "สวัสดีชาวโลก", "안녕하세요 세계, 한국어 토큰화", "こんにちは世界。カタカナとひらがな", "你好，世界！今天天气怎么样？", "Tiếng Việt: đường phố Hà Nội",
    "İstanbul ığdır Straße Ærø naïve coöperate", "e\u0301 vs \u00e9, A\u030a vs \u00c5, \u1112\u1161\u11ab vs \ud55c", "Ελληνικά ქართული հայերեն አማርኛ",
    # emoji
    "😀😃😄", "👨‍👩‍👧‍👦 family", "🏳️‍🌈🏴‍☠️", "👍🏽👋🏿", "🇩🇪🇯🇵🇺🇸", "a😀b 🚀c", "❤️ ❤ ☺️", "🧑🏽‍🚀🧑🏻‍💻",
    # white space
    *[" " * n + "x" for n in (2, 3, 4, 7, 8, 15, 16, 17, 31)], "\t", "\t\t\tx", "a\tb", "\n", "\n\n", "\n\n\n\n", "a\nb", "a \n b", "a\r\nb\r\n", " \n \n ",
    "x   \n\n   y", "a\u00a0b", "a\u3000b", "a\u2003\u2009b", "zero\u200bwidth\u200djoin\u2060er", "\ufeffbom", "tail   ", "\n tail", "  \t \n",
    # numbers
    "0", "12", "123", "1234", "12345", "1234567890", "3.14159", "1,000,000.00", "-42", "1e-10", "2024-02-29T12:34:56Z", "v1.2.3", "٣٤٥ ۱۲۳ १२३ １２３",
    "½ ² ₃ Ⅷ ①", "0x1F 0b1010", "100% $5.00 €9,99 №5",
    # code
    "def f(x):\n    return x ** 2\n", "for (int i = 0; i < n; ++i) {\n\tprintf(\"%d\\n\", a[i]);\n}\n", "{\"key\": [1, 2.5, null, true], \"k2\": \"v\\\"\"}",
    "<div class=\"a\">&nbsp;</div>", "SELECT * FROM t WHERE a='b';", "https://example.com/path?q=1&r=2#frag", "user@example.org", "C:\\Windows\\System32",
    "#!/bin/sh\n\n\nset -e\n", "x=y==z!=w<=>&&||::->=>...", "```python\nprint('hi')\n```",
    # repetition and length
    "a" * 300, "ab" * 150, "=" * 129, " " * 100, "-_" * 60, "\n" * 40, "!" * 33, "哈" * 80, "word " * 60, "Ā" * 50,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    # odd characters
    "\x01\x02\x1b[31mred\x7f", "\u202eRTL\u202c", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚", "\ue000\uf8ff", "\U0010fffd", "�", "…—–‘’“”„«»", "™®©¶§†‡", "∀x∈ℝ: ∑ᵢ xᵢ² ≥ 0", "ﬁ ﬂ Ǆ ǆ",
    "Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘", "ʻokina ʼapostrophe", "a.b,c;d:e", "(a)[b]{c}<d>", "'''\"\"\"", "##word [UNK] [MASK] <unk> <s>",
]
BAD_UTF8 = ["ff", "61ff62", "c3", "e282", "f09f98", "48656c6c6f20f09f98", "80818283", "c0af", "eda080", "61c362"]
