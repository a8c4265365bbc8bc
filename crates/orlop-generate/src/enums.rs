//! Values of enumerations, which API servers publish and the OpenAPI documents of Kubernetes' repository leave out.
//!
//! They are in the Go code that kube-apiserver's own documents are made from, one function per type. Only what is needed is
//! parsed: the name of the function, the beginning of a property, `Description` and `Enum`.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result};
use serde_json::Value;

/// Indentation of a property, of its own schema, and of the schema of its items.
const PROPERTY: usize = 5;
const OWN: usize = 7;

/// An enumeration of a field.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Enumeration {
    pub(crate) values: Value,
    /// The values are those of the items of a list or of the values of a map.
    pub(crate) of_items: bool,
    /// The field's description with an explanation of the values.
    pub(crate) description: Option<String>,
}

/// Enumerations by OpenAPI type name and field.
pub(crate) type Enums = BTreeMap<(String, String), Enumeration>;

/// Reads the enumerations of some types from `zz_generated.openapi.go`.
pub(crate) fn read<'a>(file: &Path, names: impl Iterator<Item = &'a str>) -> Result<Enums> {
    let source = fs::read_to_string(file).with_context(|| file.display().to_string())?;
    Ok(parse(&source, names))
}

fn parse<'a>(source: &str, names: impl Iterator<Item = &'a str>) -> Enums {
    // `core_v1_Pod` of `io.k8s.api.core.v1.Pod`
    let by_function: BTreeMap<String, &str> =
        names.filter_map(|name| Some((function_of(name)?, name))).collect();
    let mut enums = Enums::new();
    let (mut of, mut field, mut description) = (None, String::new(), None);
    for line in source.lines() {
        let text = line.trim_start_matches('\t');
        let depth = line.len() - text.len();
        if let Some(rest) = text.strip_prefix("func schema_") {
            let function = rest.split('(').next().unwrap_or_default();
            let found = by_function.iter().find(|(end, _)| {
                function.strip_suffix(end.as_str()).is_some_and(|before| before.ends_with('_'))
            });
            of = found.map(|(_, name)| *name);
        } else if depth == PROPERTY
            && let Some(name) = text.strip_prefix('"').and_then(|rest| rest.strip_suffix("\": {"))
        {
            (field, description) = (name.to_owned(), None);
        } else if depth == OWN
            && let Some(literal) = text.strip_prefix("Description: ")
        {
            description = serde_json::from_str::<String>(literal.trim_end_matches(',')).ok();
        } else if let Some(literal) = text.strip_prefix("Enum:").map(str::trim)
            && let Some(name) = of
            && let Some(values) = values(literal)
        {
            let of_items = depth > OWN;
            let description = if of_items { None } else { description.take() };
            enums.insert((name.to_owned(), field.clone()), Enumeration { values, of_items, description });
        }
    }
    enums
}

fn function_of(name: &str) -> Option<String> {
    let mut parts = name.rsplit('.');
    let (kind, version, group) = (parts.next()?, parts.next()?, parts.next()?);
    Some(format!("{group}_{version}_{kind}"))
}

/// `[]interface{}{"a", "b"},`
fn values(literal: &str) -> Option<Value> {
    let list = literal.strip_prefix("[]interface{}{")?.strip_suffix("},")?;
    serde_json::from_str(&format!("[{list}]")).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_of_fields_and_items_are_read() {
        let source = "\
func schema_k8sio_api_core_v1_Lamp(ref common.ReferenceCallback) common.OpenAPIDefinition {
\t\t\t\t\t\"state\": {
\t\t\t\t\t\tSchemaProps: spec.SchemaProps{
\t\t\t\t\t\t\tDescription: \"A \\\"state\\\".\\n\\nPossible enum values:\\n - `\\\"On\\\"`\",
\t\t\t\t\t\t\tEnum:        []interface{}{\"Off\", \"On\"},
\t\t\t\t\t\"colors\": {
\t\t\t\t\t\t\tDescription: \"Colors.\",
\t\t\t\t\t\t\tItems: &spec.SchemaOrArray{
\t\t\t\t\t\t\t\t\t\tEnum:   []interface{}{\"Red\"},
func schema_k8sio_api_other_v1_Lamp(ref common.ReferenceCallback) common.OpenAPIDefinition {
\t\t\t\t\t\"state\": {
\t\t\t\t\t\t\tEnum:        []interface{}{\"x\"},
";
        let enums = parse(source, ["io.k8s.api.core.v1.Lamp"].into_iter());
        let key = |field: &str| ("io.k8s.api.core.v1.Lamp".to_owned(), field.to_owned());
        let state = &enums[&key("state")];
        assert_eq!((&state.values, state.of_items), (&json!(["Off", "On"]), false));
        assert!(state.description.as_ref().unwrap().starts_with("A \"state\".\n\nPossible"));
        assert_eq!((&enums[&key("colors")].values, enums[&key("colors")].of_items), (&json!(["Red"]), true));
        assert_eq!(enums.len(), 2);
    }
}
