"""Grammars for what llama.cpp's examples are for, with texts that they allow and others that they do not."""


def _json(root: str, gap: str) -> str:
    """JSON whose `root` is another rule; `gap`: what may stand after a token."""
    return rf"""root ::= {root}
value  ::= object | array | string | number | ("null" | "true" | "false") gap
object ::= "{{" gap (
    string ":" gap value
    ("," gap string ":" gap value)*
  )? "}}" gap
array  ::= "[" gap (value ("," gap value)*)? "]" gap
string ::=
  "\"" (
    [^"\\\x7F\x00-\x1F] |
    "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{{4}}) # one that is escaped
  )* "\"" gap
number ::= "-"? ("0" | [1-9] [0-9]{{0,15}}) ("." [0-9]+)? ([eE] [-+]? [0-9]{{1,16}})? gap
gap    ::= {gap}
"""


JSON = _json("object", r'| " " | "\n" [ \t]{0,20}')
JSON_ARRAY = _json(r'"[\n" gap (value (",\n" gap value)*)? "]"', r"([ \t\n] gap)?")
ARITHMETIC = r"""root   ::= (sum "=" gap value "\n")+
sum    ::= value ([-+*/] value)*
value  ::= name | number | "(" gap sum ")" gap
name   ::= [a-z] [0-9_a-z]* gap
number ::= [0-9]+ gap
gap    ::= [ \t\n]*
"""
C = r"""root ::= function*

function   ::= type name "(" (type name)? ")" body
type       ::= ("char" | "float" | "int") gap
name       ::= [A-Z_a-z] [0-9A-Z_a-z]*
body       ::= "{" statement* "}"

statement  ::=
    "if" "(" test ")" body ("else" body)? |
    "while" "(" test ")" body |
    "for" "(" type? assignment ";" gap test ";" gap assignment ")" body |
    "return" gap sum ";" |
    type? assignment ";" |
    name gap "(" values? ")" ";" |
    "//" [^\n]* "\n" |
    "/*" ([^*] | "*" [^/])* "*/"
assignment ::= name gap "=" gap sum
test       ::= sum ("!=" | "==" | "<=" | ">=" | "<" | ">") sum

sum        ::= product (("+" | "-") product)*
product    ::= factor(("*" | "/") factor)*
factor     ::= name | [0-9]+ | "-" factor | name "(" values? ")" | "(" gap sum gap ")"
values     ::= sum ("," gap sum)*

gap        ::= ([ \t\n]+)
"""
CHESS = r"""# Two moves a line; the first line is not the last one.
root   ::= "1. " both ([1-9] [0-9]? ". " both)+
both   ::= move " " move "\n"
move   ::= (piece | pawn | king) [#+]?
piece  ::= [BKNQR] [a-h]? [1-8]? "x"? square
pawn   ::= ([a-h] "x")? square ("=" [BNQR])?
king   ::= "O-O" "-O"?
square ::= [a-h] [1-8]
"""
JAPANESE = r"""root ::= word ([ \t\n] word)*
word ::= (kana | [、-〾] | [一-鿿])+
kana ::= [ぁ-ゟ] | [ァ-ヿ]
"""
LIST = r"""root ::= line+
line ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n" # a line ends at none of these
"""
ENGLISH = r"""root ::= word ([ \t\n] word)*
word ::= (letter | [0-9] | mark)+
letter ::= [A-Za-z]
mark ::= [!-/:-@[-`{-~]
"""
TEXTS: dict[str, tuple[list[str], list[str]]] = {
    JSON: (
        ['{"a": [1, {"b": null}], "c":"\\n\\u00e9 x"}', "{}", '{"é":\n  -0.5e+1}'],
        ["[1]", '{"a"}', '{"a": 01}', "{", '{"a": "\n"}'],
    ),
    JSON_ARRAY: (["[\n1,\n[true]]", "[\n]"], ["[1]", "{}", "[\n1,\n]"]),
    ARITHMETIC: (["1+2=3\n", "(x_1 *20)=y\n", "a=b\n1=1\n"], ["1+2", "1+=3\n", "=1\n", "()=1\n"]),
    C: (
        ["int main(int argc){int x = 1;return 0;}", "int f(){while(a<b){a = a+f(1, -2);}}", ""],
        ["int", "int f(){return;}", "f(){}"],
    ),
    CHESS: (["1. e4 e5\n2. Nf3 O-O\n"], ["1. e4 e5\n", "1. e9 e5\n2. a1 a1\n"]),
    JAPANESE: (["こんにちは 世界", "カ"], ["abc", "", "あ "]),
    LIST: (["- one\n- two\n"], ["one\n", "- \n", "- one"]),
    ENGLISH: (["Well, then.", "a b"], ["é", "", "a  b"]),
}
