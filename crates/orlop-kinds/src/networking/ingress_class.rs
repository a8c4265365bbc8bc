//! IngressClass: the controller that implements an Ingress.

use orlop_api::field_error::{FieldError, FieldPath};
use serde_json::{Value, json};

use super::ingress::validate_typed_reference;
use crate::{
    BuiltinKind, StrategyFlags,
    accessors::{annotation, present, text},
    defaulting,
    printer::{ColumnDefinition, PrinterColumns, age},
    strategy::Strategy,
    validation,
};

pub(crate) const KIND: BuiltinKind = BuiltinKind {
    flags: StrategyFlags { tracks_generation: true, ..StrategyFlags::BUILTIN },
    columns: &COLUMNS,
    strategy: &IngressClass,
    ..BuiltinKind::new("networking.k8s.io", "ingressclasses")
};

const DEFAULT_CLASS: &str = "ingressclass.kubernetes.io/is-default-class";
const CONTROLLER_LENGTH_MAX: usize = 250;

static COLUMNS: PrinterColumns = PrinterColumns {
    definitions: &[
        ColumnDefinition::NAME,
        ColumnDefinition::text("Controller"),
        ColumnDefinition::text("Parameters"),
        ColumnDefinition::AGE,
    ],
    cells: |object, now| {
        let mark = if annotation(object, DEFAULT_CLASS) == "true" { " (default)" } else { "" };
        let parameters = present(object, "/spec/parameters").map_or_else(
            || "<none>".to_owned(),
            |parameters| {
                let group = text(parameters, "/apiGroup");
                let dot = if group.is_empty() { "" } else { "." };
                format!("{}{dot}{group}/{}", text(parameters, "/kind"), text(parameters, "/name"))
            },
        );
        vec![
            format!("{}{mark}", text(object, "/metadata/name")).into(),
            text(object, "/spec/controller").into(),
            parameters.into(),
            age(object, now),
        ]
    },
};

pub(crate) struct IngressClass;

impl Strategy for IngressClass {
    fn set_defaults(&self, object: &mut Value) {
        if let Some(parameters) = defaulting::object_at_mut(object, "/spec/parameters") {
            defaulting::set_if_absent(parameters, "scope", "Cluster");
        }
    }

    fn validate(&self, object: &Value) -> Vec<FieldError> {
        let path = FieldPath::root("spec");
        let controller = text(object, "/spec/controller");
        let mut errors = Vec::new();
        if controller.len() > CONTROLLER_LENGTH_MAX {
            errors.push(FieldError::too_long(&path.child("controller"), CONTROLLER_LENGTH_MAX));
        }
        errors.extend(validate_domain_path(controller, &path.child("controller")));
        if let Some(parameters) = present(object, "/spec/parameters") {
            let path = path.child("parameters");
            errors.extend(validate_typed_reference(parameters, &path));
            errors.extend(validation::validate_supported(
                parameters,
                "scope",
                &path,
                &["Cluster", "Namespace"],
            ));
            let namespace = text(parameters, "/namespace");
            match text(parameters, "/scope") {
                "Namespace" if namespace.is_empty() => {
                    let detail = "`parameters.scope` is set to 'Namespace'";
                    errors.push(FieldError::required(&path.child("namespace"), detail));
                }
                "Namespace" => {
                    errors.extend(validation::validate_dns_label(namespace, &path.child("namespace")));
                }
                "Cluster" if !namespace.is_empty() => {
                    let detail = "`parameters.scope` is set to 'Cluster'";
                    errors.push(FieldError::forbidden(&path.child("namespace"), detail));
                }
                _ => {}
            }
        }
        errors
    }

    fn validate_update(&self, object: &Value, old: &Value) -> Vec<FieldError> {
        let none = json!({});
        let (new, old) = (object.get("spec").unwrap_or(&none), old.get("spec").unwrap_or(&none));
        validation::validate_immutable(new, old, "controller", &FieldPath::root("spec")).into_iter().collect()
    }
}

/// Validates a domain-prefixed path: `example.com/path`.
fn validate_domain_path(given: &str, path: &FieldPath) -> Vec<FieldError> {
    if given.is_empty() {
        return vec![FieldError::required(path, "")];
    }
    match given.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            validation::validate_dns_subdomain(domain, path)
        }
        _ => {
            vec![FieldError::invalid(path, given, "must be a domain-prefixed path (such as \"acme.io/foo\")")]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{printer::tests::row, validation::tests::messages};

    #[test]
    fn controller_is_required_and_immutable() {
        let mut class = json!({"metadata": {"name": "c", "annotations": {DEFAULT_CLASS: "true"}}, "spec": {"controller": "a.b/c", "parameters": {"kind": "K", "name": "n", "apiGroup": "g"}}});
        IngressClass.set_defaults(&mut class);
        assert_eq!(class["spec"]["parameters"]["scope"], "Cluster");
        assert!(messages(IngressClass.validate(&class)).is_empty());
        assert_eq!(row(&COLUMNS, &class), ["c (default)", "a.b/c", "K.g/n", "<unknown>"]);
        assert_eq!(
            messages(IngressClass.validate(&json!({"spec": {"controller": "x"}}))),
            [
                r#"spec.controller: Invalid value: "x": must be a domain-prefixed path (such as "acme.io/foo")"#
            ]
        );
        let changed = json!({"spec": {"controller": "a.b/d"}});
        assert_eq!(
            messages(IngressClass.validate_update(&changed, &class)),
            [r#"spec.controller: Invalid value: "a.b/d": field is immutable"#]
        );
    }
}
