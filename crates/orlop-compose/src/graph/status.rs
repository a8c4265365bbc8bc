//! The status that authors declare: expressions over the graph, with inferred types, and conditions of their own.

use std::collections::BTreeSet;

use orlop_cel::Env;
use orlop_regex::go_quote::quote;
use serde_json::{Map, Value as Json, json};

use super::conditions::{self, ConditionEntry};
use super::template::{Draft, Template, join};
use crate::expression::{Failure, Scope, schema_of_type};
use crate::kinds::instance_schema_with_status;

/// Fields that are written by the controller, whatever the author declares.
const OWN_FIELDS: [&str; 2] = ["conditions", "state"];

/// The compiled status.
#[derive(Debug)]
pub(crate) struct StatusTemplate {
    template: Option<Template>,
    /// Conditions that replace the built-in ones.
    pub(crate) conditions: Option<Vec<ConditionEntry>>,
}

impl StatusTemplate {
    /// Returns the fields that have a value now, and the expressions that fail for good.
    pub(crate) fn fill(&self, scope: &Scope<'_>) -> (Map<String, Json>, Vec<String>) {
        let mut failures = Vec::new();
        let filled =
            self.template.as_ref().and_then(|template| template.fill_available(scope, &mut failures));
        let fields = match filled {
            Some(Json::Object(fields)) => fields,
            _ => Map::new(),
        };
        let failed = failures.into_iter().filter_map(|(text, failure)| match failure {
            Failure::Failed(error) => Some(format!("status expression \"{text}\": {error}")),
            Failure::Pending(_) => None,
        });
        (fields, failed.collect())
    }
}

/// Compiles `schema.status`; also returns the OpenAPI schema of its fields.
pub(super) fn build(
    status: &Map<String, Json>,
    env: &Env,
    spec_schema: &Json,
    namespaced: bool,
    ids: &BTreeSet<&str>,
) -> Result<(StatusTemplate, Json), String> {
    let prefixed = |error: String| format!("failed to build instance status schema: {error}");
    let mut fields = status.clone();
    let declared = fields.remove("conditions");
    fields.remove("state");
    let manifest = Json::Object(fields.clone());
    let mut constants = Vec::new();
    find_constants(&manifest, "", &mut constants);
    if !constants.is_empty() {
        let constants = constants.join(" ");
        return Err(prefixed(format!("status fields without expressions are not supported: [{constants}]")));
    }
    let draft = Draft::parse(&manifest, None).map_err(prefixed)?;
    for slot in &draft.slots {
        if slot.is_key {
            return Err(prefixed(format!(
                "expressions are not allowed in names of status fields: {}",
                slot.path
            )));
        }
        if slot.identifiers.omit {
            return Err(prefixed("omit() can only be used in resource template expressions".to_owned()));
        }
        if slot.identifiers.runtime {
            return Err(prefixed("runtime is only available in status.conditions expressions".to_owned()));
        }
        let known = |name: &&str| *name == "schema" || ids.contains(name);
        let variables = slot.identifiers.variables.iter().map(String::as_str);
        let unknown: Vec<&str> = variables.filter(|name| !known(name)).collect();
        if !unknown.is_empty() {
            return Err(prefixed(format!(
                "status field \"{}\" expression {}: references unknown identifiers: [{}]",
                slot.path,
                quote(&slot.source),
                unknown.join(" ")
            )));
        }
        if slot.identifiers.variables.is_empty() {
            return Err(format!(
                "failed to create instance node: instance status field must refer to a resource or schema: status.{}",
                slot.path
            ));
        }
    }
    let template = draft.compile(env, "status").map_err(|error| {
        // The template's own text names a template; here it is the status.
        let (own, named) =
            ("failed to compile template expression", "failed to type-check status expression");
        prefixed(error.replacen(own, named, 1))
    })?;
    let mut types = template.expressions().iter().map(|expression| schema_of_type(expression.result_type()));
    let mut schema = infer(&manifest, &mut types);
    if let Some(properties) = schema.get_mut("properties").and_then(Json::as_object_mut) {
        for field in OWN_FIELDS {
            properties.remove(field);
        }
    }
    let conditions = match declared {
        None => None,
        Some(declared) => {
            let own = instance_schema_with_status(spec_schema, namespaced);
            let env = env.extend().schema("schema", &own).build();
            Some(conditions::build(&declared, &env, ids).map_err(prefixed)?)
        }
    };
    let template = (!fields.is_empty()).then_some(template);
    Ok((StatusTemplate { template, conditions }, schema))
}

/// Collects paths that hold neither an expression nor anything below.
fn find_constants(json: &Json, path: &str, found: &mut Vec<String>) {
    match json {
        Json::Object(fields) => {
            for (name, value) in fields {
                find_constants(value, &join(path, name), found);
            }
        }
        Json::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                find_constants(item, &format!("{path}[{index}]"), found);
            }
        }
        Json::String(text) if matches!(crate::expression::to_cel(text), Ok(Some(_)) | Err(_)) => {}
        _ => found.push(path.to_owned()),
    }
}

/// The schema of a status manifest; `types` gives its expressions' schemas in order.
fn infer(json: &Json, types: &mut impl Iterator<Item = Json>) -> Json {
    match json {
        Json::Object(fields) => {
            let properties: Map<String, Json> =
                fields.iter().map(|(name, value)| (name.clone(), infer(value, types))).collect();
            json!({"type": "object", "properties": properties})
        }
        Json::Array(items) => {
            let items: Vec<Json> = items.iter().map(|item| infer(item, types)).collect();
            let first = items.first().cloned();
            let same = items.windows(2).all(|pair| pair[0] == pair[1]);
            let free = json!({"x-kubernetes-preserve-unknown-fields": true});
            json!({"type": "array", "items": first.filter(|_| same).unwrap_or(free)})
        }
        _ => types.next().unwrap_or_else(|| json!({"x-kubernetes-preserve-unknown-fields": true})),
    }
}
