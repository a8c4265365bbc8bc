//! Evaluation of a node for one instance.

use std::collections::BTreeSet;

use serde_json::{Value as Json, json};

use super::{Graph, Node, Role};
use crate::expression::{Expression, Failure, Scope};
use crate::metrics::{Count, Metrics, Size};

/// Desired state of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Target {
    /// Managed objects, one per item.
    Managed(Vec<Item>),
    /// An object of somebody else.
    Named {
        /// Its namespace, if it has one.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// Objects of somebody else.
    Selected {
        /// Their namespace; all if absent.
        namespace: Option<String>,
        /// Their LabelSelector.
        selector: Json,
    },
}

/// A managed object as the template makes it, without labels of the controller.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Item {
    /// Its namespace, if it has one.
    pub(crate) namespace: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// The manifest.
    pub(crate) manifest: Json,
}

/// Readiness of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    /// Everything is there and passes.
    Yes,
    /// Not yet, with the reason.
    No(String),
    /// An expression fails for good.
    Failed(String),
}

/// Evaluates `includeWhen`.
pub(crate) fn include(node: &Node, scope: &Scope<'_>) -> Result<bool, Failure> {
    if let Some(metrics) = scope.metrics().filter(|_| !node.include_when.is_empty()) {
        metrics.count(Count::IncludeChecks, &[]);
    }
    for expression in &node.include_when {
        let included = expression.evaluate_condition(scope).map_err(|failure| {
            let only_schema = expression.variables.iter().all(|name| name == "schema");
            let message = format!(
                "node \"{}\": includeWhen expression \"{}\": {}",
                node.id,
                expression.text,
                failure.message()
            );
            match failure {
                // Nothing that the cluster does brings a field of the spec.
                Failure::Pending(_) if !only_schema => Failure::Pending(message),
                _ => Failure::Failed(message),
            }
        })?;
        if !included {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Fills in a node's template; `namespace` is the instance's.
pub(crate) fn resolve(
    graph: &Graph,
    node: &Node,
    scope: &Scope<'_>,
    namespace: Option<&str>,
) -> Result<Target, Failure> {
    let located = |failure: Failure| match failure {
        Failure::Pending(message) => Failure::Pending(format!("node \"{}\": {message}", node.id)),
        Failure::Failed(message) => Failure::Failed(format!("node \"{}\": {message}", node.id)),
    };
    match node.role {
        Role::ExternalName | Role::ExternalSelector => {
            let manifest = node.template.fill(scope).map_err(located)?.unwrap_or_default();
            let text = |pointer: &str| {
                manifest
                    .pointer(pointer)
                    .and_then(Json::as_str)
                    .filter(|text| !text.is_empty())
                    .map(str::to_owned)
            };
            let own = namespace.filter(|_| node.kind.namespaced && node.role == Role::ExternalName);
            let namespace = text("/metadata/namespace").or_else(|| own.map(str::to_owned));
            if node.role == Role::ExternalSelector {
                let selector = manifest.pointer("/metadata/selector").cloned().unwrap_or_default();
                return Ok(Target::Selected { namespace, selector });
            }
            let Some(name) = text("/metadata/name") else {
                return Err(located(Failure::Failed("metadata.name is empty".to_owned())));
            };
            Ok(Target::Named { namespace, name })
        }
        Role::Single => {
            let manifest = node.template.fill(scope).map_err(located)?.unwrap_or_default();
            Ok(Target::Managed(vec![item(node, manifest, namespace).map_err(located)?]))
        }
        Role::Collection => collection(graph, node, scope, namespace).map_err(located).map(Target::Managed),
    }
}

fn item(node: &Node, mut manifest: Json, instance_namespace: Option<&str>) -> Result<Item, Failure> {
    let failed = |message: String| Failure::Failed(message);
    let metadata = manifest.get_mut("metadata").and_then(Json::as_object_mut);
    let Some(metadata) = metadata else { return Err(failed("metadata is not an object".to_owned())) };
    let namespace = metadata.get("namespace").and_then(Json::as_str).filter(|text| !text.is_empty());
    let namespace = match node.kind.namespaced {
        false => None,
        true => match namespace.or(instance_namespace) {
            Some(namespace) => Some(namespace.to_owned()),
            None => {
                return Err(failed(
                    "is namespaced and must resolve metadata.namespace when the instance is cluster-scoped"
                        .to_owned(),
                ));
            }
        },
    };
    if let Some(namespace) = &namespace {
        metadata.insert("namespace".to_owned(), json!(namespace));
    }
    let name = metadata.get("name").and_then(Json::as_str).filter(|name| !name.is_empty());
    let Some(name) = name.map(str::to_owned) else { return Err(failed("metadata.name is empty".to_owned())) };
    Ok(Item { namespace, name, manifest })
}

fn collection(
    graph: &Graph,
    node: &Node,
    scope: &Scope<'_>,
    namespace: Option<&str>,
) -> Result<Vec<Item>, Failure> {
    let mut dimensions: Vec<(&str, Vec<Json>)> = Vec::new();
    let mut count = 1_usize;
    for (name, expression) in &node.for_each {
        let items = list(expression, scope)?;
        count = count.saturating_mul(items.len());
        dimensions.push((name, items));
    }
    if count > graph.collection_max {
        return Err(Failure::Failed(format!(
            "collection size of {count} is over the maximum collection size of {}",
            graph.collection_max
        )));
    }
    if let Some(metrics) = scope.metrics() {
        metrics.sized(Size::Collection, &[], count);
    }
    let mut items = Vec::with_capacity(count);
    let mut identities = BTreeSet::new();
    for index in 0..count {
        let mut scope = scope.clone();
        // The first dimension is the outer loop.
        let mut rest = index;
        let mut stride = count;
        for (name, values) in &dimensions {
            stride /= values.len().max(1);
            let at = rest / stride.max(1);
            rest %= stride.max(1);
            if let Some(value) = values.get(at) {
                scope.bind(name, value);
            }
        }
        let manifest = node.template.fill(&scope)?.unwrap_or_default();
        let item = item(node, manifest, namespace)?;
        if !identities.insert((item.namespace.clone(), item.name.clone())) {
            let gvk = &node.kind.gvk;
            let (namespace, name) = (item.namespace.unwrap_or_default(), item.name);
            return Err(Failure::Failed(format!(
                "identity collision: duplicate identity: {}/{}/{}/{namespace}/{name}",
                gvk.group, gvk.version, gvk.kind
            )));
        }
        items.push(item);
    }
    Ok(items)
}

fn list(expression: &Expression, scope: &Scope<'_>) -> Result<Vec<Json>, Failure> {
    match expression.evaluate(scope)? {
        Some(Json::Array(items)) => Ok(items),
        other => Err(Failure::Failed(format!(
            "forEach expression \"{}\" must return a list, got {}",
            expression.text,
            other.unwrap_or(Json::Null)
        ))),
    }
}

/// Evaluates `readyWhen` over what was observed: an object, or a list with the number of items wanted.
pub(crate) fn ready(node: &Node, observed: Option<&Json>, wanted: usize, metrics: &Metrics) -> Ready {
    metrics.count(Count::ReadyChecks, &[]);
    let ready = observed_ready(node, observed, wanted, metrics);
    if ready != Ready::Yes {
        metrics.count(Count::NodesNotReady, &[]);
    }
    ready
}

fn observed_ready(node: &Node, observed: Option<&Json>, wanted: usize, metrics: &Metrics) -> Ready {
    let Some(observed) = observed else {
        return Ready::No(format!("node \"{}\": no observed state: waiting for readiness", node.id));
    };
    if node.role != Role::Collection {
        return passes(node, &node.id, observed, metrics);
    }
    let items = observed.as_array().map_or(&[][..], Vec::as_slice);
    if items.len() < wanted {
        let seen = items.len();
        return Ready::No(format!(
            "node \"{}\": collection not ready: observed {seen} but desired {wanted}",
            node.id
        ));
    }
    for item in items {
        match passes(node, "each", item, metrics) {
            Ready::Yes => {}
            Ready::No(reason) => {
                let name = item.pointer("/metadata/name").and_then(Json::as_str).unwrap_or_default();
                return Ready::No(format!("{reason} for item \"{name}\""));
            }
            failed => return failed,
        }
    }
    Ready::Yes
}

fn passes(node: &Node, name: &str, observed: &Json, metrics: &Metrics) -> Ready {
    let mut scope = Scope::measured(metrics);
    scope.bind(name, observed);
    for (expression, reads) in &node.ready_when {
        let text = &expression.text;
        let id = &node.id;
        match expression.evaluate_condition(&scope) {
            Ok(true) => {}
            Ok(false) => {
                // Values of Secrets belong into no status.
                let values =
                    if node.kind.gvk.kind == "Secret" { String::new() } else { reads.values(&scope) };
                let values = if values.is_empty() { values } else { format!(": {values}") };
                return Ready::No(format!(
                    "waiting for node \"{id}\": readyWhen condition evaluated to false: \"{text}\" (waiting for \
                     readiness){values}"
                ));
            }
            Err(Failure::Pending(error)) => {
                return Ready::No(format!(
                    "waiting for node \"{id}\": readyWhen expression \"{text}\": {error} (waiting for readiness)"
                ));
            }
            Err(Failure::Failed(error)) => {
                return Ready::Failed(format!("node \"{id}\": readyWhen expression \"{text}\": {error}"));
            }
        }
    }
    Ready::Yes
}
