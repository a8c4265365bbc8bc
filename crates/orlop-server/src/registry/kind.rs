//! A kind is data plus a few hooks.

use std::{fmt, sync::Arc};

use orlop_api::{
    field_error::FieldError,
    group_version::{GroupKind, GroupResource, GroupVersionKind},
    names::NameRule,
    schema::Schema,
};
use orlop_crd::Scale;
use serde_json::Value;
use tokio::sync::watch;

use super::{scope::Scopes, storage::Storage};
use crate::{User, table::Columns};

/// Everything the server knows about one resource in one version.
pub struct Kind {
    /// Group, version and kind.
    pub gvk: GroupVersionKind,
    /// The kind of its lists.
    pub list_kind: String,
    /// Plural name, as in paths.
    pub resource: String,
    /// Singular name.
    pub singular: String,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Vec<String>,
    /// What kubectl also calls it.
    pub short_names: Vec<String>,
    /// Groups of resources it is in, such as `all`.
    pub categories: Vec<String>,
    /// Subresources it has.
    pub subresources: Vec<Subresource>,
    /// The shape of its objects.
    pub schema: KindSchema,
    /// How its objects are kept.
    pub storage: Storage,
    /// How its names are checked.
    pub name_rule: NameRule,
    /// What is its own.
    pub rules: Rules,
    /// What schema does not say.
    pub hooks: Box<dyn Hooks>,
    /// Told when the registry no longer serves it.
    pub retirement: Retirement,
}

/// Whether a kind is no longer served, for those who hold on to it: watches end then.
#[derive(Debug, Default)]
pub struct Retirement(watch::Sender<bool>);

impl Retirement {
    /// Tells everyone who waits.
    pub fn retire(&self) {
        self.0.send_replace(true);
    }

    /// Whether the kind is no longer served.
    pub fn is_retired(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when the kind is no longer served.
    pub fn retired(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut retired = self.0.subscribe();
        async move {
            // An error means that the kind is gone altogether.
            let _ = retired.wait_for(|retired| *retired).await;
        }
    }
}

/// Where a kind departs from most.
#[derive(Clone, Debug)]
pub struct Rules {
    /// An update without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// An update of a missing object creates it.
    pub create_on_update: bool,
    /// A delete that leaves nothing answers with what was deleted, and not with a Status.
    pub returns_deleted: bool,
    /// Finalizers must be Kubernetes' own or have a domain in front.
    pub qualified_finalizers: bool,
    /// Dependents are orphaned unless a delete says otherwise.
    pub orphans_by_default: bool,
    /// Writes of `metadata.generation` follow `spec`.
    pub has_generation: bool,
    /// Fields of a custom resource are reported in another order than those of built-ins.
    pub custom: bool,
    /// Objects go by themselves after this many seconds.
    pub ttl_seconds: Option<u64>,
    /// Fields that selectors may name, besides name and namespace.
    pub selectable: Vec<String>,
    /// What writes through its endpoints may change and own, where that is not what most may.
    pub scopes: Scopes,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            unconditional_update: true,
            create_on_update: false,
            returns_deleted: false,
            qualified_finalizers: false,
            orphans_by_default: false,
            has_generation: true,
            custom: false,
            ttl_seconds: None,
            selectable: Vec::new(),
            scopes: &[],
        }
    }
}

/// A subresource, with the kind it takes where that is not the resource's own.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale`…
    pub name: String,
    /// The kind it takes.
    pub gvk: GroupVersionKind,
    /// What can be done with it.
    pub verbs: Vec<String>,
}

/// Where a kind's schema is.
#[derive(Clone, Debug)]
pub enum KindSchema {
    /// One of the tables that came with the program.
    Builtin(&'static orlop_api::schema::builtin::TypeEntry),
    /// Given at run time.
    Owned(Arc<Schema>),
    /// Made when it is first asked for.
    Lazy(Arc<dyn LazySchema>),
}

/// A schema that is made when it is first asked for, and then kept.
pub trait LazySchema: fmt::Debug + Send + Sync {
    /// The schema.
    fn schema(&self) -> &Schema;

    /// What tells it from others without making it.
    fn fingerprint(&self) -> &str;
}

impl KindSchema {
    /// The schema.
    pub fn get(&self) -> &Schema {
        match self {
            Self::Builtin(entry) => entry.schema(),
            Self::Owned(schema) => schema,
            Self::Lazy(source) => source.schema(),
        }
    }
}

impl Kind {
    /// `deployments.apps`.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.gvk.group.clone(), self.resource.clone())
    }

    /// `Deployment.apps`.
    pub fn group_kind(&self) -> GroupKind {
        self.gvk.group_kind()
    }

    /// Whether the kind has a subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Whether status is written apart from the rest.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Whether a verb is offered.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|allowed| allowed == verb)
    }

    /// What every key of its objects has in it: `group/resource/`.
    pub fn key_prefix(&self) -> String {
        let kind = self.stored_kind();
        let group = if kind.gvk.group.is_empty() { "core" } else { &kind.gvk.group };
        [group, "/", &kind.resource, "/"].concat()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kind")
            .field("gvk", &self.gvk)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

/// What a kind does beyond its schema. Every method has a default that does nothing.
pub trait Hooks: Send + Sync {
    /// Fills in what schema defaults cannot: values that depend on other fields.
    fn default(&self, _object: &mut Value) {}

    /// Sets what the server owns in a new object.
    fn prepare_create(&self, _object: &mut Value) {}

    /// Writes down who creates an object, where a kind keeps that.
    fn set_creator(&self, _object: &mut Value, _creator: &User) {}

    /// Sets what the server owns in a changed object.
    fn prepare_update(&self, _object: &mut Value, _old: &Value) {}

    /// Sets what the server owns in an object that was changed through a subresource.
    fn prepare_subresource(&self, _subresource: &str, _object: &mut Value, _old: &Value) {}

    /// Says what is wrong with an object.
    fn validate(&self, _object: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Says what is wrong with a change.
    fn validate_update(&self, _object: &Value, _old: &Value) -> Vec<FieldError> {
        Vec::new()
    }

    /// Says what is wrong with a change that came through a subresource.
    fn validate_subresource(&self, _subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
        self.validate_update(object, old)
    }

    /// Says everything that is wrong with an object that replaces another, through the endpoint
    /// `subresource` (empty for the object itself).
    fn validate_replacing(&self, object: &Value, old: &Value, subresource: &str) -> Vec<FieldError> {
        let mut errors = self.validate(object);
        errors.extend(match subresource {
            "" => self.validate_update(object, old),
            subresource => self.validate_subresource(subresource, object, old),
        });
        errors
    }

    /// Sets what the server owns in an object that is about to be deleted, or marked for it.
    fn prepare_delete(&self, _object: &mut Value) {}

    /// Says what a user should be warned about.
    fn warnings(&self, _object: &Value) -> Vec<String> {
        Vec::new()
    }

    /// Says what a user should be warned about in a change.
    fn warnings_replacing(&self, object: &Value, _old: &Value) -> Vec<String> {
        self.warnings(object)
    }

    /// The columns that kubectl shows; `None` for name and creation time.
    fn columns(&self) -> Option<&dyn Columns> {
        None
    }

    /// The OpenAPI schema as its author wrote it, with descriptions and all, where that is kept.
    fn published_schema(&self) -> Option<Value> {
        None
    }

    /// Where the parts of its scale are; `None` for where most kinds have them.
    fn scale(&self) -> Option<&Scale> {
        None
    }

    /// What users of a version that is on its way out are told with every answer.
    fn deprecation(&self) -> Option<String> {
        None
    }

    /// The value of a selectable field; empty where it is absent.
    fn field(&self, object: &Value, path: &str) -> String {
        orlop_api::fields::field_text(object, path)
    }
}

/// No hooks.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plain;

impl Hooks for Plain {}
