//! Environments of admission: match conditions of webhooks, and the expressions of admission policies.
//!
//! Every expression sees `object`, `oldObject`, `request` and `namespaceObject`; [`AdmissionVariables`] adds the rest.
//! The caller binds them: `object` and `oldObject` are null where the request has none.

use std::sync::LazyLock;

use crate::env::Env;
use crate::library::Library;
use crate::library::authorizer::{AUTHORIZER, RESOURCE_CHECK};
use crate::schema::{Schema, SchemaSpec};
use crate::types::Type;

/// Minor version of Kubernetes whose libraries stored expressions may use. New ones may use those of the version
/// before, so that a cluster can be rolled back.
const MINOR: u32 = 37;

static STORED: LazyLock<Env> = LazyLock::new(|| base(MINOR));
static NEW: LazyLock<Env> = LazyLock::new(|| base(MINOR - 1));

/// Variables and types of an admission expression besides those that all have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AdmissionVariables {
    /// `params`
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`
    pub authorizer: bool,
    /// `Object{…}`, `JSONPatch{…}` and `jsonpatch.escapeKey`
    pub patch_types: bool,
}

/// Origin of an expression, by which the libraries are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpressionOrigin {
    /// A request that writes it.
    Written,
    /// The store: it was accepted before.
    Stored,
}

impl Env {
    /// Returns the environment of admission expressions.
    pub fn admission(origin: ExpressionOrigin, variables: AdmissionVariables) -> Env {
        let base = match origin {
            ExpressionOrigin::Written => &NEW,
            ExpressionOrigin::Stored => &STORED,
        };
        let mut builder = base.extend();
        if variables.params {
            builder = builder.variable("params", Type::Dyn);
        }
        if variables.authorizer {
            builder = builder
                .variable("authorizer", AUTHORIZER)
                .variable("authorizer.requestResource", RESOURCE_CHECK);
        }
        if variables.patch_types {
            builder = builder.library(Library::JsonPatch).mutation_types();
        }
        builder.build()
    }
}

fn base(minor: u32) -> Env {
    let mut builder = Env::kubernetes(minor).variable("object", Type::Dyn).variable("oldObject", Type::Dyn);
    for (variable, name, spec) in [
        ("namespaceObject", "kubernetes.Namespace", namespace()),
        ("request", "kubernetes.AdmissionRequest", request()),
    ] {
        if let Some(schema) = Schema::new(name, &spec, false) {
            builder = builder.schema(variable, &schema);
        }
    }
    builder.build()
}

fn kind(kind: &str) -> SchemaSpec {
    SchemaSpec { kind: kind.to_owned(), ..SchemaSpec::default() }
}

fn text() -> SchemaSpec {
    kind("string")
}

fn time() -> SchemaSpec {
    SchemaSpec { format: "date-time".to_owned(), ..text() }
}

fn list(item: SchemaSpec) -> SchemaSpec {
    SchemaSpec { items: Some(Box::new(item)), ..kind("array") }
}

fn map(value: SchemaSpec) -> SchemaSpec {
    SchemaSpec { additional_properties: Some(Box::new(value)), ..kind("object") }
}

/// An object whose fields are named without escaping: `request.namespace`.
fn object(fields: &[(&str, SchemaSpec)]) -> SchemaSpec {
    let properties = fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())).collect();
    SchemaSpec { properties, lenient: true, ..kind("object") }
}

/// Returns the type of `request`: an AdmissionRequest without `uid`, `object` and `oldObject`.
fn request() -> SchemaSpec {
    let named = |name: &str, spec: SchemaSpec| SchemaSpec { name: name.to_owned(), ..spec };
    let kind_type = object(&[("group", text()), ("version", text()), ("kind", text())]);
    let kind_type = named("kubernetes.GroupVersionKind", kind_type);
    let resource = object(&[("group", text()), ("version", text()), ("resource", text())]);
    let resource = named("kubernetes.GroupVersionResource", resource);
    let user = object(&[
        ("username", text()),
        ("uid", text()),
        ("groups", list(text())),
        ("extra", map(list(text()))),
    ]);
    let anything = SchemaSpec { lenient: true, ..SchemaSpec::default() };
    object(&[
        ("kind", kind_type.clone()),
        ("resource", resource.clone()),
        ("subResource", text()),
        ("requestKind", kind_type),
        ("requestResource", resource),
        ("requestSubResource", text()),
        ("name", text()),
        ("namespace", text()),
        ("operation", text()),
        ("userInfo", user),
        ("dryRun", kind("boolean")),
        ("options", anything),
    ])
}

/// Returns the type of `namespaceObject`. Some fields of a Namespace are left out, as in Kubernetes.
fn namespace() -> SchemaSpec {
    let metadata = object(&[
        ("name", text()),
        ("generateName", text()),
        ("namespace", text()),
        ("labels", map(text())),
        ("annotations", map(text())),
        ("UID", text()),
        ("creationTimestamp", time()),
        ("deletionGracePeriodSeconds", kind("integer")),
        ("deletionTimestamp", time()),
        ("generation", kind("integer")),
        ("resourceVersion", text()),
        ("finalizers", list(text())),
    ]);
    let condition = object(&[
        ("status", text()),
        ("type", text()),
        ("lastTransitionTime", time()),
        ("message", text()),
        ("reason", text()),
    ]);
    object(&[
        ("metadata", metadata),
        ("spec", object(&[("finalizers", list(text()))])),
        ("status", object(&[("conditions", list(condition)), ("phase", text())])),
    ])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

    use serde_json::json;

    use super::*;
    use crate::activation::Activation;
    use crate::cost::Budget;

    fn compiles(expression: &str, variables: AdmissionVariables) -> Result<(), String> {
        let env = Env::admission(ExpressionOrigin::Written, variables);
        env.compile(expression).map(drop).map_err(|errors| errors.to_string())
    }

    #[test]
    fn variables_are_declared_as_in_kubernetes() {
        let none = AdmissionVariables::default();
        for expression in [
            "object.spec.replicas > oldObject.spec.replicas",
            "request.namespace == 'a' && 'b' in request.userInfo.groups && !request.dryRun",
            "request.userInfo.extra['k'].exists(v, v == 'x')",
            "namespaceObject.metadata.labels['env'] == 'prod' && namespaceObject.status.phase == 'Active'",
            "request.options.fieldManager == 'kubectl'",
            "request.kind == request.requestKind && request.resource == request.requestResource",
        ] {
            compiles(expression, none).unwrap();
        }
        assert!(compiles("request.uid == ''", none).unwrap_err().contains("undefined field 'uid'"));
        assert!(compiles("request.name == 1", none).is_err(), "names are strings");
        for (expression, variables) in [
            ("params.max > 1", AdmissionVariables { params: true, ..none }),
            (
                "authorizer.requestResource.check('delete').allowed() && authorizer.path('/x').check('get').allowed()",
                AdmissionVariables { authorizer: true, ..none },
            ),
            (
                "[JSONPatch{op: 'add', path: '/' + jsonpatch.escapeKey('a/b'), value: Object{spec: Object.spec{}}}]",
                AdmissionVariables { patch_types: true, ..none },
            ),
        ] {
            compiles(expression, variables).unwrap();
            assert!(compiles(expression, none).is_err(), "{expression}");
        }
    }

    #[test]
    fn absent_fields_of_a_request_are_no_keys() {
        let env = Env::admission(ExpressionOrigin::Stored, AdmissionVariables::default());
        let request = json!({"kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE"});
        let evaluate = |expression: &str| {
            let program = env.compile(expression).unwrap();
            let activation = Activation::new().json("request", &request);
            let value = program.evaluate(&activation, &mut Budget::new(1_000)).map(|value| value.as_bool());
            value.map_err(|error| error.to_string())
        };
        assert_eq!(evaluate("has(request.subResource)"), Ok(Some(false)));
        assert_eq!(evaluate("request.subResource == ''"), Err("no such key: subResource".to_owned()));
        assert_eq!(evaluate("request.kind.kind == 'Pod'"), Ok(Some(true)));
    }
}
