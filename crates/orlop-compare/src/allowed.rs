//! Differences that are allowed, of `data/allowed.json`, each with its reason.

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use crate::{difference::Difference, request::Request};

/// All allowances.
#[derive(Debug)]
pub(crate) struct Allowances(Vec<Allowance>);

/// An allowed difference. What is left out matches anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Allowance {
    id: String,
    /// Sentence of COMPAT.md.
    reason: String,
    /// Pattern of the request's label; `*` is any text.
    #[serde(default)]
    label: Option<String>,
    /// Pattern of the request's path.
    #[serde(default)]
    path: Option<String>,
    /// Pattern of the difference's pointer.
    #[serde(default)]
    pointer: Option<String>,
    /// Pattern of our value's JSON; `absent` for none.
    #[serde(default)]
    ours: Option<String>,
    /// Pattern of their value's JSON; `absent` for none.
    #[serde(default)]
    theirs: Option<String>,
}

impl Allowances {
    pub(crate) fn load() -> Result<Self> {
        let list = serde_json::from_str(include_str!("../data/allowed.json")).context("data/allowed.json")?;
        Ok(Self(list))
    }

    /// Returns the id of the allowance of a difference, if there is one.
    pub(crate) fn of(&self, request: &Request, difference: &Difference) -> Option<&str> {
        let allows = |allowance: &&Allowance| allowance.allows(request, difference);
        self.0.iter().find(allows).map(|allowance| allowance.id.as_str())
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|allowance| allowance.id.as_str())
    }

    /// Returns the section of COMPAT.md.
    pub(crate) fn markdown(&self) -> String {
        let mut reasons: Vec<&str> = self.0.iter().map(|allowance| allowance.reason.as_str()).collect();
        reasons.dedup();
        reasons.iter().map(|reason| format!("- {reason}\n")).collect()
    }
}

impl Allowance {
    fn allows(&self, request: &Request, difference: &Difference) -> bool {
        let is_like = |pattern: &Option<String>, text: &str| {
            pattern.as_ref().is_none_or(|pattern| matches(pattern, text))
        };
        let value =
            |value: &Option<Value>| value.as_ref().map_or_else(|| "absent".to_owned(), Value::to_string);
        is_like(&self.label, &request.label)
            && is_like(&self.path, &request.path)
            && is_like(&self.pointer, &difference.pointer)
            && is_like(&self.ours, &value(&difference.ours))
            && is_like(&self.theirs, &value(&difference.theirs))
    }
}

/// Returns true if a text has a pattern, in which `*` is any text.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(text) = text.strip_prefix(start) else { return false };
    let starts = text.char_indices().map(|(index, _)| index).chain([text.len()]);
    let mut tails = starts.filter_map(|index| text.get(index..));
    if rest.is_empty() { true } else { tails.any(|tail| matches(rest, tail)) }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    const BEGIN: &str = "<!-- written by `cargo xtask compare --allowed` -->\n\n";
    const END: &str = "\n<!-- the end of the allowed differences -->";

    #[test]
    fn patterns_match() {
        for (pattern, text, expected) in [
            ("/body/*/x", "/body/a/b/x", true),
            ("/body/*/x", "/body/a/b/y", false),
            ("*", "", true),
            ("a*", "ab", true),
            ("a", "ab", false),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn compat_lists_the_allowed_differences() {
        let allowances = Allowances::load().unwrap();
        let ids: BTreeSet<&str> = allowances.ids().collect();
        assert_eq!(ids.len(), allowances.0.len(), "ids are unique");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../COMPAT.md");
        let text = fs::read_to_string(path).unwrap();
        let section = text.split_once(BEGIN).unwrap().1.split_once(END).unwrap().0;
        assert_eq!(section, allowances.markdown(), "put the output of `cargo xtask compare --allowed` there");
    }
}
