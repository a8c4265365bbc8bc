//! CustomResourceDefinitions of every kind.

use serde_json::{Value, json};

use crate::{
    bridge,
    fields::{custom_resource_definition, object_schema, parse},
    kinds::KINDS,
    settings::Settings,
};

/// Returns the definitions of the kinds that are reconciled.
pub fn definitions(settings: &Settings) -> Vec<Value> {
    let kinds = KINDS.iter().filter(|kind| settings.has_kind(kind.descriptor().kind));
    let mut all: Vec<Value> = kinds.map(|kind| kind.descriptor().definition()).collect();
    let bridge = bridge::KINDS.iter().filter(|kind| settings.has_kind(kind.descriptor().kind));
    all.extend(bridge.map(|kind| kind.descriptor().definition(&settings.bridge_group)));
    all.push(field_export());
    all.push(role_selector());
    all
}

fn field_export() -> Value {
    let mut spec =
        object_schema(&parse("from!{resource!{group! kind! name!} path!} to!{name! namespace kind! key}"));
    spec["properties"]["to"]["properties"]["kind"]["enum"] = json!(["configmap", "secret"]);
    let names = ("FieldExport", "fieldexports");
    custom_resource_definition("services.k8s.aws", names, true, spec, object_schema(&[]), json!([]), &[])
}

fn role_selector() -> Value {
    let spec = object_schema(&parse(
        "arn!= namespaceSelector{names[] labelSelector{matchLabels{}}} resourceTypeSelector[]{group version kind}
         resourceLabelSelector{matchLabels{}}",
    ));
    let names = ("IAMRoleSelector", "iamroleselectors");
    custom_resource_definition("services.k8s.aws", names, false, spec, object_schema(&[]), json!([]), &[])
}
