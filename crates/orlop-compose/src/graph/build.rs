//! From a definition to a graph, with kro's checks in kro's order. The first error wins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlop_cel::{Env, Schema, Type};
use orlop_regex::go_quote::quote;
use serde_json::{Value as Json, json};

use super::template::{Draft, Template};
use super::{Graph, Node, Role, names, status};
use crate::dag::Dag;
use crate::definition::{DefinitionSpec, ResourceSpec, Scope};
use crate::expression::{Expression, Identifiers, Reads, environment, is_assignable, standalone};
use crate::kinds::{Gvk, Kind, Kinds, instance_schema};
use crate::names::RESERVED_PREFIXES;
use crate::plural::pluralize;
use crate::simple_schema;

/// Limits of a graph.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most items of a collection.
    pub collection_max: usize,
    /// Most dimensions of `forEach`.
    pub dimensions_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { collection_max: 1000, dimensions_max: 10 }
    }
}

/// A definition that cannot be served.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum BuildError {
    /// The author has to change it.
    #[error("{0}")]
    Invalid(String),
    /// It waits for a kind to be served.
    #[error("{message}")]
    MissingKind {
        /// The kind.
        gvk: Gvk,
        /// Text for the condition.
        message: String,
    },
}

/// A graph, and what its CustomResourceDefinition is made of.
#[derive(Debug)]
pub struct Built {
    /// The graph.
    pub graph: Graph,
    /// OpenAPI schema of an instance's `spec`.
    pub spec_schema: Json,
    /// OpenAPI schema of an instance's `status`, as far as the author declares it.
    pub status_schema: Json,
}

/// Returns the kinds that a definition uses.
pub fn required_kinds(spec: &DefinitionSpec) -> BTreeSet<Gvk> {
    let kinds =
        spec.resources.iter().filter_map(|resource| match (&resource.template, &resource.external_ref) {
            (Some(template), _) => {
                let text = |key: &str| template.get(key).and_then(Json::as_str);
                Some(Gvk::new(text("apiVersion")?, text("kind")?))
            }
            (None, Some(external)) => Some(Gvk::new(&external.api_version, &external.kind)),
            _ => None,
        });
    kinds.collect()
}

/// Compiles a definition.
pub fn build(name: &str, spec: &DefinitionSpec, kinds: &Kinds, limits: Limits) -> Result<Built, BuildError> {
    let invalid = |message: String| BuildError::Invalid(message);
    names::check(spec, limits.dimensions_max)
        .map_err(|error| invalid(format!("failed to validate resourcegraphdefinition: {error}")))?;
    let spec_schema = simple_schema::to_openapi(&spec.schema.spec, &spec.schema.types).map_err(|error| {
        invalid(format!(
            "failed to build resourcegraphdefinition \"{name}\": failed to build OpenAPI schema for instance: {error}"
        ))
    })?;
    let namespaced = spec.schema.scope == Scope::Namespaced;
    let gvk = Gvk {
        group: spec.schema.group.clone(),
        version: spec.schema.api_version.clone(),
        kind: spec.schema.kind.clone(),
    };

    let mut parts = Vec::with_capacity(spec.resources.len());
    for resource in &spec.resources {
        let id = &resource.id;
        let part = Parts::parse(resource, kinds, namespaced).map_err(|error| match error {
            BuildError::Invalid(message) => invalid(format!("failed to build resource \"{id}\": {message}")),
            BuildError::MissingKind { gvk, message } => BuildError::MissingKind {
                gvk,
                message: format!("failed to build resource \"{id}\": {message}"),
            },
        })?;
        parts.push(part);
    }

    let dag = dependencies(&parts)
        .map_err(|error| invalid(format!("failed to build dependency graph: {error}")))?;
    let order = dag.order().map_err(|error| invalid(format!("failed to build dependency graph: {error}")))?;
    let waves = dag.waves();

    let schema = instance_schema(&spec_schema, namespaced);
    let mut env = environment().extend().schema("schema", &schema);
    for part in &parts {
        env = match part.role.is_list() {
            true => env.schema(&part.resource.id, &Schema::list_of(&part.kind.schema)),
            false => env.schema(&part.resource.id, &part.kind.schema),
        };
    }
    let env = env.build();

    let index_of: BTreeMap<&str, usize> =
        order.iter().enumerate().map(|(index, id)| (id.as_str(), index)).collect();
    let soft: BTreeMap<String, BTreeSet<String>> = parts
        .iter()
        .map(|part| {
            let soft = part.resource.depends_on.iter().filter(|dependency| dependency.is_soft());
            (part.resource.id.clone(), soft.map(|dependency| dependency.id().to_owned()).collect())
        })
        .collect();
    let hard: BTreeMap<String, BTreeSet<String>> =
        parts.iter().map(|part| (part.resource.id.clone(), part.hard_dependencies())).collect();
    let data: BTreeMap<String, BTreeSet<String>> =
        parts.iter().map(|part| (part.resource.id.clone(), part.data_dependencies())).collect();
    let mut nodes: Vec<Option<Node>> = order.iter().map(|_| None).collect();
    for part in parts {
        let id = part.resource.id.clone();
        let indices = |ids: &BTreeSet<String>| -> Vec<usize> {
            ids.iter().filter_map(|id| index_of.get(id.as_str()).copied()).collect()
        };
        let dependencies = indices(&hard[&id]);
        let only_soft: BTreeSet<String> = soft[&id].difference(&hard[&id]).cloned().collect();
        let mut node = part
            .compile(&env)
            .map_err(|error| invalid(format!("failed to validate resource \"{id}\": {error}")))?;
        node.dependencies = dependencies;
        node.data_dependencies = indices(&data[&id]);
        node.soft_dependencies = indices(&only_soft);
        node.wave = waves.get(&id).copied().unwrap_or(1);
        if let Some(slot) = index_of.get(id.as_str()).and_then(|index| nodes.get_mut(*index)) {
            *slot = Some(node);
        }
    }

    let ids: BTreeSet<&str> = order.iter().map(String::as_str).collect();
    let (status, status_schema) =
        status::build(&spec.schema.status, &env, &spec_schema, namespaced, &ids).map_err(invalid)?;
    let graph = Graph {
        name: name.to_owned(),
        plural: pluralize(&gvk.kind.to_lowercase()),
        gvk,
        namespaced,
        nodes: nodes.into_iter().flatten().collect(),
        order,
        service_account: service_account(spec.service_account_name.as_deref(), &schema).map_err(invalid)?,
        deletion_policy: spec.deletion_policy.unwrap_or_default(),
        collection_max: limits.collection_max,
        status,
    };
    Ok(Built { graph, spec_schema, status_schema })
}

/// Compiles the name of the service account. It may read the instance only, so that it is known before any child is.
fn service_account(name: Option<&str>, schema: &Schema) -> Result<Option<Template>, String> {
    let Some(name) = name else { return Ok(None) };
    let prefixed = |error: String| format!("failed to build serviceAccountName: {error}");
    if name.is_empty() {
        return Err(prefixed("the name is empty".to_owned()));
    }
    let draft = Draft::parse_text(name).map_err(prefixed)?;
    for slot in &draft.slots {
        let unknown: Vec<&str> =
            slot.identifiers.variables.iter().map(String::as_str).filter(|name| *name != "schema").collect();
        if !unknown.is_empty() || slot.identifiers.omit || slot.identifiers.runtime {
            return Err(prefixed(format!("references unknown identifiers: [{}]", unknown.join(" "))));
        }
    }
    let env = environment().extend().schema("schema", schema).build();
    draft.compile(&env, "serviceAccountName").map(Some).map_err(prefixed)
}

/// A resource whose texts are parsed but not yet compiled.
struct Parts<'d> {
    resource: &'d ResourceSpec,
    role: Role,
    kind: Arc<Kind>,
    draft: Draft,
    include_when: Vec<(String, Identifiers)>,
    ready_when: Vec<(String, Identifiers)>,
    for_each: Vec<(String, String, Identifiers)>,
}

impl<'d> Parts<'d> {
    fn parse(resource: &'d ResourceSpec, kinds: &Kinds, namespaced: bool) -> Result<Self, BuildError> {
        let invalid = BuildError::Invalid;
        let id = &resource.id;
        let combination = |what: &str| {
            invalid(format!(
                "invalid combination of resource fields: resource \"{id}\": cannot use externalRef with {what}"
            ))
        };
        let (role, manifest) = match (&resource.template, &resource.external_ref) {
            (Some(_), Some(_)) => return Err(combination("template")),
            (None, None) => {
                return Err(invalid("exactly one of template or externalRef must be provided".to_owned()));
            }
            (None, Some(_)) if !resource.for_each.is_empty() => return Err(combination("forEach")),
            (Some(template), None) => {
                check_shape(id, template).map_err(invalid)?;
                (if resource.for_each.is_empty() { Role::Single } else { Role::Collection }, template.clone())
            }
            (None, Some(external)) => {
                let metadata = &external.metadata;
                let role = match (&metadata.name, &metadata.selector) {
                    (Some(_), None) => Role::ExternalName,
                    (None, Some(_)) => Role::ExternalSelector,
                    _ => {
                        return Err(invalid(format!(
                            "invalid external ref metadata for resource {id}: exactly one of name or selector must \
                             be provided"
                        )));
                    }
                };
                let metadata = serde_json::to_value(metadata).unwrap_or_default();
                let manifest =
                    json!({"apiVersion": external.api_version, "kind": external.kind, "metadata": metadata});
                check_shape(id, &manifest).map_err(invalid)?;
                (role, manifest)
            }
        };
        let text = |key: &str| manifest.get(key).and_then(Json::as_str).unwrap_or_default();
        let gvk = Gvk::new(text("apiVersion"), text("kind"));
        let Some(kind) = kinds.get(&gvk).cloned() else {
            let message = format!(
                "failed to get schema for resource {id}: cannot resolve group version kind \"{gvk}\": schema not found"
            );
            return Err(BuildError::MissingKind { gvk, message });
        };
        check_scope(id, role, &manifest, &kind, namespaced).map_err(invalid)?;
        let external;
        let schema = match role.is_managed() {
            true => &kind.schema,
            false => {
                external = external_schema();
                &external
            }
        };
        let draft = Draft::parse(&manifest, Some(schema)).map_err(|error| {
            invalid(format!("failed to extract CEL expressions from schema for resource {id}: {error}"))
        })?;
        check_slots(id, &gvk, &draft, namespaced).map_err(invalid)?;
        let conditions = |what: &str, texts: &[String]| {
            texts
                .iter()
                .map(|text| parse_standalone(what, text))
                .collect::<Result<Vec<_>, _>>()
                .map_err(invalid)
        };
        let mut for_each = Vec::new();
        for (name, text) in resource.for_each.iter().flatten() {
            let (text, identifiers) = parse_standalone("forEach", text).map_err(invalid)?;
            for_each.push((name.clone(), text, identifiers));
        }
        Ok(Self {
            role,
            kind,
            draft,
            include_when: conditions("includeWhen", &resource.include_when)?,
            ready_when: conditions("readyWhen", &resource.ready_when)?,
            for_each,
            resource,
        })
    }

    /// Returns the identifiers that expressions of the node read, with a name for each place and its text.
    fn identifiers(&self) -> impl Iterator<Item = (String, &str, &Identifiers)> {
        let slots = self.draft.slots.iter();
        let slots = slots.map(|slot| {
            let place = format!("expression {} at path {}", quote(&slot.source), quote(&slot.path));
            (place, slot.source.as_str(), &slot.identifiers)
        });
        let include = self.include_when.iter();
        let include = include
            .map(|(text, found)| (format!("includeWhen expression {}", quote(text)), text.as_str(), found));
        let each = self.for_each.iter().map(|(name, text, found)| {
            let place = format!("forEach iterator \"{name}\" expression {}", quote(text));
            (place, text.as_str(), found)
        });
        slots.chain(include).chain(each)
    }

    /// The nodes that this one reads.
    fn data_dependencies(&self) -> BTreeSet<String> {
        let mut ids: BTreeSet<String> =
            self.identifiers().flat_map(|(_, _, found)| found.variables.iter().cloned()).collect();
        ids.remove("schema");
        for (name, _, _) in &self.for_each {
            ids.remove(name);
        }
        ids
    }

    /// The nodes that must be ready before this one is resolved.
    fn hard_dependencies(&self) -> BTreeSet<String> {
        let mut ids = self.data_dependencies();
        let named = self.resource.depends_on.iter().filter(|dependency| !dependency.is_soft());
        ids.extend(named.map(|dependency| dependency.id().to_owned()));
        ids
    }

    fn compile(self, env: &Env) -> Result<Node, String> {
        let id = &self.resource.id;
        let mut for_each = Vec::new();
        let mut item_env = env.extend();
        for (name, text, _) in &self.for_each {
            let expression = Expression::compile(env, text).map_err(|error| {
                format!("node \"{id}\": forEach iterator \"{name}\" expression {}: {error}", quote(text))
            })?;
            item_env = match expression.result_type() {
                Type::List(item) => match &**item {
                    Type::Object(schema) => item_env.schema(name, schema),
                    // Items are bound as JSON, which does not tell these from text or integers.
                    Type::Double | Type::Timestamp | Type::Duration | Type::Bytes => {
                        item_env.variable(name, Type::Dyn)
                    }
                    item => item_env.variable(name, item.clone()),
                },
                Type::Dyn => item_env.variable(name, Type::Dyn),
                other => {
                    return Err(format!(
                        "node \"{id}\": forEach iterator \"{name}\" must return a list, got \"{other}\""
                    ));
                }
            };
            for_each.push((name.clone(), expression));
        }
        let template = self.draft.compile(&item_env.build(), &format!("resource \"{id}\""))?;
        let mut include_when = Vec::new();
        for (text, _) in &self.include_when {
            include_when.push(compile_condition(env, "includeWhen", id, text)?);
        }
        let own = match self.role {
            Role::Collection => environment().extend().schema("each", &self.kind.schema),
            Role::ExternalSelector => environment().extend().schema(id, &Schema::list_of(&self.kind.schema)),
            _ => environment().extend().schema(id, &self.kind.schema),
        };
        let own = own.build();
        let own_name = if self.role == Role::Collection { "each" } else { id.as_str() };
        let mut ready_when = Vec::new();
        for (text, identifiers) in &self.ready_when {
            let unknown: Vec<&str> =
                identifiers.variables.iter().map(String::as_str).filter(|name| *name != own_name).collect();
            if !unknown.is_empty() {
                let unknown = unknown.join(" ");
                return Err(format!(
                    "resource \"{id}\" readyWhen: references unknown identifiers: [{unknown}]"
                ));
            }
            let expression = compile_condition(&own, "readyWhen", id, text)?;
            let reads = environment().parse(text).map(|ast| Reads::of(&ast)).unwrap_or_default();
            ready_when.push((expression, reads));
        }
        Ok(Node {
            id: id.clone(),
            role: self.role,
            kind: self.kind,
            dependencies: Vec::new(),
            data_dependencies: Vec::new(),
            soft_dependencies: Vec::new(),
            wave: 1,
            lifecycle: self.resource.lifecycle.clone().unwrap_or_default(),
            template,
            include_when,
            ready_when,
            for_each,
        })
    }
}

/// Collects the edges of the graph.
fn dependencies(parts: &[Parts<'_>]) -> Result<Dag, String> {
    let mut dag = Dag::default();
    for (index, part) in parts.iter().enumerate() {
        dag.add_node(&part.resource.id, index);
    }
    let ids: BTreeSet<&str> = parts.iter().map(|part| part.resource.id.as_str()).collect();
    for part in parts {
        let id = &part.resource.id;
        let iterators: BTreeSet<&str> = part.for_each.iter().map(|(name, _, _)| name.as_str()).collect();
        for (place, text, found) in part.identifiers() {
            if found.runtime {
                return Err(format!(
                    "resource \"{id}\": {place}: runtime is only available in status.conditions expressions"
                ));
            }
            let known = |name: &str| name == "schema" || ids.contains(name) || iterators.contains(name);
            let unknown: Vec<&str> =
                found.variables.iter().map(String::as_str).filter(|name| !known(name)).collect();
            if let Some(first) = unknown.first() {
                let caret = point_at(text, first);
                let unknown = unknown.join(" ");
                return Err(format!(
                    "resource \"{id}\": {place}: references unknown identifiers: [{unknown}]{caret}"
                ));
            }
        }
        for (name, _, found) in &part.for_each {
            let others: Vec<&str> = found
                .variables
                .iter()
                .map(String::as_str)
                .filter(|other| iterators.contains(other))
                .collect();
            if !others.is_empty() {
                let others = others.join(" ");
                return Err(format!(
                    "node \"{id}\": forEach iterator \"{name}\" cannot reference other iterators [{others}] - forEach \
                     iterators are independent (cartesian product)"
                ));
            }
        }
        let identity = part
            .draft
            .slots
            .iter()
            .filter(|slot| matches!(slot.path.as_str(), "metadata.name" | "metadata.namespace"));
        let used: BTreeSet<&str> =
            identity.flat_map(|slot| slot.identifiers.variables.iter().map(String::as_str)).collect();
        let missing: Vec<&str> = iterators.iter().copied().filter(|name| !used.contains(name)).collect();
        if !missing.is_empty() {
            let missing = missing.join(" ");
            return Err(format!(
                "node \"{id}\": all forEach dimensions must be used to produce a unique resource identity, missing: \
                 [{missing}]"
            ));
        }
        let named = part.resource.depends_on.iter().map(|dependency| dependency.id().to_owned());
        for dependency in part.hard_dependencies().into_iter().chain(named) {
            if !ids.contains(dependency.as_str()) {
                return Err(format!(
                    "resource \"{id}\": dependsOn: references unknown identifiers: [{dependency}]"
                ));
            }
            dag.add_edge(id, &dependency).map_err(|error| format!("resource \"{id}\": {error}"))?;
        }
    }
    Ok(dag)
}

/// Shows the line of a text that has a name, and a caret below it, as the checker's errors do.
fn point_at(text: &str, name: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    let column = |line: &str| {
        let found = line.match_indices(name).find(|(at, _)| {
            let before = line[..*at].chars().next_back();
            let after = line[at + name.len()..].chars().next();
            !before.is_some_and(|c| is_word(c) || c == '.') && !after.is_some_and(is_word)
        });
        found.map(|(at, _)| line[..at].chars().count())
    };
    let found = text.lines().find_map(|line| Some((line, column(line)?)));
    found.map(|(line, column)| format!("\n | {line}\n | {}^", ".".repeat(column))).unwrap_or_default()
}

fn parse_standalone(what: &str, text: &str) -> Result<(String, Identifiers), String> {
    let expression = standalone(text)
        .map_err(|error| format!("failed to parse {what} expressions: {error}"))?
        .ok_or_else(|| {
            format!("failed to parse {what} expressions: only standalone expressions are allowed")
        })?;
    let ast = environment()
        .parse(&expression)
        .map_err(|error| format!("failed to parse {what} expression {}: {error}", quote(&expression)))?;
    let identifiers = Identifiers::of(&ast);
    if identifiers.omit {
        return Err("omit() can only be used in resource template expressions".to_owned());
    }
    Ok((expression, identifiers))
}

fn compile_condition(env: &Env, what: &str, id: &str, text: &str) -> Result<Expression, String> {
    let expression = Expression::compile(env, text).map_err(|error| {
        format!("failed to type-check {what} expression {} in resource \"{id}\": {error}", quote(text))
    })?;
    let result = expression.result_type();
    if is_assignable(result, &Type::Bool).is_err() || *result == Type::Null {
        return Err(format!(
            "{what} expression {} in resource \"{id}\" must return bool or optional_type(bool), but returns \
             \"{result}\"",
            quote(text)
        ));
    }
    Ok(expression)
}

/// Checks that a manifest is a Kubernetes object.
fn check_shape(id: &str, template: &Json) -> Result<(), String> {
    let wrong = |what: &str| format!("resource {id} is not a valid Kubernetes object: {what}");
    for field in ["apiVersion", "kind"] {
        match template.get(field) {
            None => return Err(wrong(&format!("{field} field not found"))),
            Some(Json::String(_)) => {}
            Some(_) => return Err(wrong(&format!("{field} field is not a string"))),
        }
    }
    match template.get("metadata") {
        None => return Err(wrong("metadata field not found")),
        Some(Json::Object(_)) => {}
        Some(_) => return Err(wrong("metadata field is not a map")),
    }
    let text = |field: &str| template.get(field).and_then(Json::as_str).unwrap_or_default();
    let version = text("apiVersion");
    if version.is_empty()
        || version.split('/').count() > 2
        || version.contains("${")
        || version.ends_with('/')
    {
        return Err(wrong(&format!("invalid apiVersion format \"{version}\"")));
    }
    let kind = text("kind").to_lowercase();
    let label = kind.starts_with(|c: char| c.is_ascii_lowercase())
        && !kind.ends_with('-')
        && kind.len() <= 63
        && kind.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    if !label {
        return Err(wrong(&format!(
            "invalid kind \"{}\": must be a DNS-1035 label when lowercased",
            text("kind")
        )));
    }
    Ok(())
}

fn check_scope(id: &str, role: Role, manifest: &Json, kind: &Kind, namespaced: bool) -> Result<(), String> {
    let has_namespace = manifest.pointer("/metadata/namespace").is_some_and(|namespace| !namespace.is_null());
    if !kind.namespaced && has_namespace {
        return Err(format!("resource \"{id}\" is cluster-scoped and must not set metadata.namespace"));
    }
    if kind.namespaced && !namespaced && !has_namespace && role != Role::ExternalSelector {
        return Err(format!(
            "resource \"{id}\" is namespaced and must set metadata.namespace when the instance CRD is cluster-scoped"
        ));
    }
    for (field, what) in [("labels", "label"), ("annotations", "annotation")] {
        let keys = manifest.pointer(&format!("/metadata/{field}")).and_then(Json::as_object);
        for key in keys.into_iter().flat_map(|map| map.keys()) {
            if let Some(prefix) = RESERVED_PREFIXES.iter().find(|prefix| key.starts_with(**prefix)) {
                return Err(format!(
                    "invalid {what} for resource \"{id}\". {what}s with prefix \"{prefix}\" are reserved for internal use"
                ));
            }
        }
    }
    Ok(())
}

fn check_slots(id: &str, gvk: &Gvk, draft: &Draft, namespaced: bool) -> Result<(), String> {
    let is_crd = gvk.group == "apiextensions.k8s.io" && gvk.kind == "CustomResourceDefinition";
    for slot in &draft.slots {
        let path = &slot.path;
        if is_crd && !path.starts_with("metadata.") {
            return Err(format!(
                "CEL expressions in CRDs are only supported for metadata fields, found in path \"{path}\", resource {id}"
            ));
        }
        let required = path == "metadata.name" || (path == "metadata.namespace" && !namespaced);
        if slot.identifiers.omit && required {
            return Err(format!(
                "resource \"{id}\": omit() cannot be used at path \"{path}\" — the field is required and must resolve to \
                 a concrete value"
            ));
        }
        if slot.is_key && (path.starts_with("apiVersion") || path.starts_with("kind")) {
            return Err(format!("expressions are not allowed at path \"{path}\""));
        }
    }
    Ok(())
}

/// The shape of an external reference, for literals and types of expressions.
fn external_schema() -> Schema {
    let text = json!({"type": "string"});
    let metadata = json!({"type": "object", "properties": {
        "name": text, "namespace": text,
        "selector": {"type": "object", "properties": {
            "matchLabels": {"type": "object", "additionalProperties": text},
            "matchExpressions": {"type": "array", "items": {"type": "object", "properties": {
                "key": text, "operator": text, "values": {"type": "array", "items": text}}}}}}}});
    let json =
        json!({"type": "object", "properties": {"apiVersion": text, "kind": text, "metadata": metadata}});
    crate::kinds::schema_from_openapi(&Gvk::new("kro.run/v1alpha1", "ExternalRef"), &json, &|_| None)
}
