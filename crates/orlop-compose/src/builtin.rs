//! Built-in kinds of Kubernetes from Orlop's own tables, for work without a cluster.

use orlop_api::schema::{self as api, builtin};
use orlop_cel::{ListType, SchemaSpec};

use crate::kinds::{Gvk, Kind, schema_from_spec};

/// Returns a built-in kind with its fields.
pub(crate) fn builtin_kind(gvk: &Gvk) -> Option<Kind> {
    let resource = builtin::resources().into_iter().find(|resource| {
        resource.group == gvk.group && resource.version == gvk.version && resource.kind == gvk.kind
    })?;
    let entry = builtin::type_of(&gvk.group, &gvk.version, &gvk.kind)?;
    let spec = Reader { open: vec![entry.name()] }.read(entry.schema());
    Some(Kind {
        gvk: gvk.clone(),
        plural: resource.plural.to_owned(),
        namespaced: resource.namespaced,
        schema: schema_from_spec(gvk, spec),
    })
}

/// Returns true if a group and version has built-in kinds: one that is not among them does not exist.
pub(crate) fn is_builtin_version(gvk: &Gvk) -> bool {
    let same = |resource: builtin::Resource| resource.group == gvk.group && resource.version == gvk.version;
    builtin::resources().into_iter().any(same)
}

struct Reader {
    /// The types being read. One that contains itself is cut there.
    open: Vec<&'static str>,
}

impl Reader {
    fn follow(&mut self, reference: &api::SchemaRef) -> SchemaSpec {
        match reference {
            api::SchemaRef::Inline(schema) => self.read(schema),
            api::SchemaRef::Builtin(entry) => {
                let name = entry.name();
                // A quantity is written as a string or a number.
                if name.ends_with(".Quantity") || self.open.contains(&name) {
                    return SchemaSpec::default();
                }
                self.open.push(name);
                let spec = self.read(entry.schema());
                self.open.pop();
                spec
            }
        }
    }

    fn read(&mut self, schema: &api::Schema) -> SchemaSpec {
        let texts = |list: &[Box<str>]| list.iter().map(ToString::to_string).collect();
        let additional_properties = match &schema.additional_properties {
            api::AdditionalProperties::Of(inner) => Some(Box::new(self.follow(inner))),
            _ => None,
        };
        SchemaSpec {
            kind: schema.kind.name().to_owned(),
            format: schema.format.as_deref().unwrap_or_default().to_owned(),
            nullable: schema.nullable,
            properties: schema
                .properties
                .iter()
                .map(|(name, field)| (name.to_string(), self.follow(&field.schema)))
                .collect(),
            required: texts(&schema.required),
            additional_properties,
            items: schema.items.as_ref().map(|items| Box::new(self.follow(items))),
            int_or_string: schema.int_or_string,
            preserve_unknown_fields: schema.preserve_unknown || schema.opaque,
            embedded_resource: schema.embedded_resource,
            list_type: match &schema.list_type {
                api::ListType::Atomic => ListType::Atomic,
                api::ListType::Set => ListType::Set,
                api::ListType::Map(keys) => ListType::Map(texts(keys)),
            },
            ..SchemaSpec::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn built_in_kinds_have_their_fields_and_scope() {
        let deployment = builtin_kind(&Gvk::new("apps/v1", "Deployment")).unwrap();
        assert_eq!((deployment.plural.as_str(), deployment.namespaced), ("deployments", true));
        let fields: Vec<&str> = deployment.schema.fields().map(|(name, _)| name).collect();
        assert!(fields.contains(&"spec") && fields.contains(&"metadata"), "{fields:?}");
        assert!(!builtin_kind(&Gvk::new("v1", "Namespace")).unwrap().namespaced);
        // A schema that contains itself ends somewhere.
        assert!(builtin_kind(&Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition")).is_some());
        assert!(builtin_kind(&Gvk::new("apps/v1", "Deploymnt")).is_none());
        assert!(is_builtin_version(&Gvk::new("apps/v1", "Deploymnt")));
        assert!(!is_builtin_version(&Gvk::new("example.com/v1", "Widget")));
    }
}
