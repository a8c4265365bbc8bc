//! JSONPath of kubectl and printer columns.
//!
//! A template is text with `{…}` parts; a part is a path (`.a.b[0]`, `['a.b']`, `[*]`,
//! `..a`, `[0:2]`, `[?(@.a=="b")]`, `['a','b']`), a literal in quotes, or `range … end`.
//! A column's path has no braces.

mod evaluate;
mod parse;

pub use parse::{InvalidPath, JsonPath};

use serde_json::Value;

/// A step of a path.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    Field(String),
    /// Every entry or item.
    Wildcard,
    /// The value and all descendants.
    Recursive,
    /// Items from, to (exclusive) and by; negative counts from the end.
    Slice {
        from: Option<i64>,
        to: Option<i64>,
        by: Option<i64>,
        single: bool,
    },
    Filter(Box<Filter>),
    Union(Vec<Vec<Step>>),
    /// The root object.
    Root,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Filter {
    left: Operand,
    comparison: Option<(Comparison, Operand)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Path(Vec<Step>),
    Literal(Value),
}

/// A part of a template.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Part {
    Text(String),
    Path(Vec<Step>),
    Range { over: Vec<Step>, body: Vec<Part> },
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn store() -> Value {
        json!({
            "metadata": {"name": "n", "labels": {"app.kubernetes.io/name": "web", "a": "b"}},
            "items": [{"name": "x", "n": 1, "ready": true}, {"name": "y", "n": 2}, {"name": "z", "n": 3, "inner": {"name": "deep"}}],
            "empty": [], "nothing": null
        })
    }

    #[test]
    fn templates_match_kubectl() {
        for (template, expected) in [
            ("plain", "plain"),
            ("{.metadata.name}", "n"),
            ("{$.metadata.name}", "n"),
            ("{metadata.name}", "n"),
            ("{['metadata']['name']}", "n"),
            ("{.metadata.labels['app\\.kubernetes\\.io/name']}", "web"),
            (r"{.metadata.labels.app\.kubernetes\.io/name}", "web"),
            ("{.items[0].name}", "x"),
            ("{.items[-1].name}", "z"),
            ("{.items[*].name}", "x y z"),
            ("{.items[0:2].n}", "1 2"),
            ("{.items[::2].n}", "1 3"),
            ("{.items[?(@.n>1)].name}", "y z"),
            ("{.items[?(@.name=='y')].n}", "2"),
            ("{.items[?(@.ready)].name}", "x"),
            ("{.items[?(@.ready==true)].name}", "x"),
            ("{.items[0]['name','n']}", "x 1"),
            ("{.items[0,2].name}", "x z"),
            ("{..name}", "x y z deep n"),
            ("{range .items[*]}[{.name}={.n}] {end}", "[x=1] [y=2] [z=3] "),
            ("{'text'}{.metadata.name}{\"\\n\"}", "textn\n"),
            ("{.absent}", ""),
            ("{.metadata.labels.*}", "b web"),
            ("{.items[2].inner}", r#"{"name":"deep"}"#),
            ("{.empty}", "[]"),
        ] {
            let path = JsonPath::template(template).unwrap_or_else(|error| panic!("{template}: {error}"));
            assert_eq!(path.print(&store()), expected, "{template}");
        }
    }

    #[test]
    fn column_paths_find_values() {
        let find = |path: &str| {
            JsonPath::column(path).unwrap().find(&store()).into_iter().cloned().collect::<Vec<_>>()
        };
        assert_eq!(find(".metadata.name"), [json!("n")]);
        assert_eq!(find(".items[?(@.name==\"z\")].n"), [json!(3)]);
        assert_eq!(find(".absent.deep"), Vec::<Value>::new());
    }

    #[test]
    fn invalid_paths_are_refused() {
        for template in
            ["{.a", "{.a[}", "{.a[b}", "{range .a}", "{end}", "{.a[?(@.b]}", "{'x}", "{.a[1:x]}", "{@@}"]
        {
            assert!(JsonPath::template(template).is_err(), "{template}");
        }
        let deep = format!("{{{}}}", "[?(@".repeat(10_000));
        assert!(JsonPath::template(&deep).is_err());
    }

    proptest! {
        #[test]
        fn parser_and_evaluator_never_panic(template in r"[{}\[\].?()@*:'a-c0-9=<> ,$-]{0,24}") {
            if let Ok(path) = JsonPath::template(&template) {
                let _ = path.print(&store());
            }
            if let Ok(path) = JsonPath::column(&template) {
                let _ = path.find(&store());
            }
        }
    }
}
