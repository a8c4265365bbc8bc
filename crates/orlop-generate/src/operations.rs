//! Descriptions of operations and their parameters, from Kubernetes' published OpenAPI v3 documents.
//!
//! They are part of the table of descriptions, as fields of types that do not exist:
//!
//! - `operation`: a template by action (empty: the list of resources), with `/` after it for subresources. Placeholders are `{kind}`,
//!   `{subresource}`, `{method}` and `{article}`.
//! - `parameter`: descriptions by name, and `parameter CONTEXT` where one differs: the action, `RESOURCE/SUBRESOURCE` of a
//!   connection or log, or `path`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

const METHODS: &[&str] = &["delete", "get", "head", "options", "patch", "post", "put"];

/// Texts and the number of operations that have them.
type Counted = BTreeMap<String, usize>;

/// Reads the operations of a folder of OpenAPI documents into rows of the table of descriptions.
pub(crate) fn descriptions(folder: &Path) -> Result<String> {
    let mut operations: BTreeMap<String, Counted> = BTreeMap::new();
    // By name, description and context.
    let mut parameters: BTreeMap<String, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    let mut uses: BTreeMap<(String, String), usize> = BTreeMap::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let path = entry.path();
        let document: Value =
            serde_json::from_slice(&fs::read(&path)?).with_context(|| path.display().to_string())?;
        for (path, item) in document["paths"].as_object().into_iter().flatten() {
            for method in METHODS {
                let Some(operation) = item.get(*method) else { continue };
                let Some(place) = Place::of(path, method, operation) else {
                    // A list of resources has no action.
                    if let Some(text) = operation["description"].as_str().filter(|_| is_group_version(path)) {
                        *operations.entry(String::new()).or_default().entry(text.to_owned()).or_default() +=
                            1;
                    }
                    continue;
                };
                if let Some(text) = operation["description"].as_str() {
                    *operations.entry(place.key()).or_default().entry(place.template(text)).or_default() += 1;
                }
                let lists = [&item["parameters"], &operation["parameters"]];
                for parameter in lists.into_iter().filter_map(Value::as_array).flatten() {
                    let text = |field: &str| parameter[field].as_str().unwrap_or_default().to_owned();
                    let (name, description) = (text("name"), text("description"));
                    // It has the kind in it.
                    if name == "name" {
                        continue;
                    }
                    *uses.entry((name.clone(), description.clone())).or_default() += 1;
                    let contexts = parameters.entry(name).or_default().entry(description).or_default();
                    contexts.insert(if parameter["in"] == "path" {
                        "path".to_owned()
                    } else {
                        place.context()
                    });
                }
            }
        }
    }
    let mut table = String::new();
    for (key, texts) in &operations {
        if let Some(text) = commonest(texts) {
            table.push_str(&row("operation", key, text));
        }
    }
    for (name, descriptions) in &parameters {
        let count =
            |description: &String| uses.get(&(name.clone(), description.clone())).copied().unwrap_or(0);
        let counted: Counted = descriptions.keys().map(|text| (text.clone(), count(text))).collect();
        let common = commonest(&counted).unwrap_or_default();
        table.push_str(&row("parameter", name, common));
        for (description, contexts) in descriptions.iter().filter(|(description, _)| *description != common) {
            for context in contexts {
                table.push_str(&row(&format!("parameter {context}"), name, description));
            }
        }
    }
    let mut rows: Vec<&str> = table.split_inclusive('\n').collect();
    rows.sort_unstable();
    Ok(rows.concat())
}

fn row(of: &str, field: &str, text: &str) -> String {
    format!("{of}\t{field}\t{}\n", Value::from(text))
}

/// `/api/v1/`, `/apis/apps/v1/`
fn is_group_version(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    matches!(parts.as_slice(), ["", "api", _, ""] | ["", "apis", _, _, ""])
}

/// Returns the text that most have, and the first of several in alphabetical order.
fn commonest(texts: &Counted) -> Option<&str> {
    let most = texts.values().max()?;
    texts.iter().find(|(_, count)| *count == most).map(|(text, _)| text.as_str())
}

/// The resource and action that an operation is about.
struct Place<'a> {
    action: &'a str,
    method: &'a str,
    /// The kind of the resource, not of the subresource.
    kind: &'a str,
    resource: &'a str,
    subresource: &'a str,
}

impl<'a> Place<'a> {
    fn of(path: &'a str, method: &'a str, operation: &'a Value) -> Option<Self> {
        let action = operation["x-kubernetes-action"].as_str()?;
        let kind = operation["x-kubernetes-group-version-kind"]["kind"].as_str()?;
        let (before, after) = path.split_once("/{name}").unwrap_or((path, ""));
        let subresource = after.trim_start_matches('/').split('/').next().unwrap_or_default();
        let resource = before.rsplit('/').next().unwrap_or_default();
        let kind = match operation["description"].as_str() {
            // The kind of a subresource may be another, `Scale`.
            Some(text) if !subresource.is_empty() => text.rsplit(' ').next().unwrap_or(kind),
            _ => kind,
        };
        Some(Self { action, method, kind, resource, subresource })
    }

    fn key(&self) -> String {
        if self.subresource.is_empty() { self.action.to_owned() } else { format!("{}/", self.action) }
    }

    fn context(&self) -> String {
        if self.action == "connect" || self.subresource == "log" {
            format!("{}/{}", self.resource, self.subresource)
        } else {
            self.action.to_owned()
        }
    }

    fn template(&self, text: &str) -> String {
        let word = |word: &str| {
            let (bare, end) = word.strip_suffix('.').map_or((word, ""), |bare| (bare, "."));
            let replaced = match bare {
                _ if bare == self.kind => "{kind}",
                _ if bare == self.subresource => "{subresource}",
                _ if bare == self.method.to_uppercase() => "{method}",
                _ => bare,
            };
            format!("{replaced}{end}")
        };
        let text = text.split(' ').map(word).collect::<Vec<_>>().join(" ");
        // "an object of kind" is no article of the kind.
        text.replace(" a {kind}", " {article} {kind}").replace(" an {kind}", " {article} {kind}")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn templates_leave_out_names() {
        let operation = |action: &str, kind: &str, text: &str| {
            json!({
                "x-kubernetes-action": action, "x-kubernetes-group-version-kind": {"kind": kind}, "description": text,
            })
        };
        let template = |path: &str, method: &str, operation: &Value| {
            let place = Place::of(path, method, operation).unwrap();
            (place.key(), place.template(operation["description"].as_str().unwrap()))
        };
        for (path, method, operation, key, expected) in [
            (
                "/apis/a/v1/orbits",
                "post",
                operation("post", "Orbit", "create an Orbit"),
                "post",
                "create {article} {kind}",
            ),
            (
                "/apis/a/v1/moons/{name}/scale",
                "get",
                operation("get", "Scale", "read scale of the specified Moon"),
                "get/",
                "read {subresource} of the specified {kind}",
            ),
            (
                "/apis/a/v1/moons/{name}/proxy/{path}",
                "put",
                operation("connect", "MoonProxyOptions", "connect PUT requests to proxy of Moon"),
                "connect/",
                "connect {method} requests to {subresource} of {kind}",
            ),
        ] {
            assert_eq!(template(path, method, &operation), (key.to_owned(), expected.to_owned()));
        }
    }
}
