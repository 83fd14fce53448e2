// Package jinja renders chat templates as transformers does: Jinja2 with trim_blocks and lstrip_blocks on, loop controls,
// namespace, raise_exception, strftime_now and a tojson that prints like Python's json.dumps.
//
// Execution, scopes and control flow are gonja's. gonja reads a smaller expression language than Jinja2, though, and
// some of its built-ins differ, so a template is first rewritten:
//
//  1. scan cuts the source into text and tags and applies Jinja2's whitespace rules (gonja's lstrip_blocks also eats a
//     space between two tags of one line).
//  2. parse reads each expression by Jinja2's grammar and writes it again with nothing but names, literals, and, or,
//     calls of global functions, and filters: a + b becomes (a | _op("+", b)), a.b[0] becomes (a | _attr("b") | _item(0)).
//     gonja has no nested conditional expression, no method call on a parenthesis, no newline inside a tag, no 'a\'b',
//     finds no x[-1] in a list of one, and takes what follows "is" greedily.
//  3. gonja compiles the result with filters of our own that keep Python's meaning of values: None is not undefined,
//     dictionaries keep their order, strings are indexed by character, None prints as "None".
//
// Glossary of values: undefined is nil, None is the constant None, numbers are int and float64, a list or tuple is []any,
// a dictionary is Dict, a namespace is map[string]any.
package jinja
