//! A kind: names, schema, storage, strategy flags and hooks of one resource in one version.

mod storage;

use std::{fmt, ops::Deref, sync::Arc};

use orlop_api::{
    field_error::FieldError,
    group_version::{GroupKind, GroupResource, GroupVersionKind},
    names::NameRule,
    schema::{self, Malformed, Root, Schema},
};
use orlop_kinds::{Strategy, StrategyFlags, UpdateScopes, table::Columns};
use serde_json::Value;
use tokio::sync::watch;

pub use self::storage::{Convert, Storage};
use crate::object::metadata_mut;

/// One resource in one version.
pub struct Kind {
    /// Group, version and kind.
    pub gvk: GroupVersionKind,
    /// Kind of lists.
    pub list_kind: String,
    /// Plural name, as in paths.
    pub resource: String,
    /// Singular name.
    pub singular: String,
    /// Namespace-scoped; cluster-scoped otherwise.
    pub namespaced: bool,
    /// Verbs it serves.
    pub verbs: Vec<String>,
    /// Short names, for kubectl.
    pub short_names: Vec<String>,
    /// Categories, such as `all`.
    pub categories: Vec<String>,
    /// Subresources.
    pub subresources: Vec<Subresource>,
    /// Schema of its objects.
    pub schema: KindSchema,
    /// Storage: the stored form of its objects and the way to it.
    pub storage: Storage,
    /// Rule for `metadata.name`.
    pub name_rule: NameRule,
    /// Strategy flags.
    pub flags: StrategyFlags,
    /// Fields that field selectors may name, besides `metadata.name` and `metadata.namespace`.
    pub selectable_fields: Vec<String>,
    /// Names of objects that cannot be deleted.
    pub immortal_names: &'static [&'static str],
    /// Update scopes by endpoint, where they differ from the defaults.
    pub update_scopes: UpdateScopes,
    /// Printer columns.
    pub columns: StaticOrBoxed<dyn Columns>,
    /// Hooks.
    pub strategy: StaticOrBoxed<dyn Strategy>,
    /// Notifies holders when the registry no longer serves the kind.
    pub retirement: Retirement,
}

/// Notification that the registry no longer serves a kind. Its watches end then.
#[derive(Debug, Default)]
pub struct Retirement(watch::Sender<bool>);

impl Retirement {
    /// Marks the kind as no longer served.
    pub fn retire(&self) {
        self.0.send_replace(true);
    }

    /// Returns true once the kind is no longer served.
    pub fn is_retired(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when the kind is no longer served.
    pub fn retired(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut retired = self.0.subscribe();
        async move {
            // An error means that the sender is dropped, and the kind with it.
            let _ = retired.wait_for(|retired| *retired).await;
        }
    }
}

/// A subresource.
#[derive(Clone, Debug)]
pub struct Subresource {
    /// `status`, `scale`…
    pub name: String,
    /// Kind of its request and response bodies.
    pub gvk: GroupVersionKind,
    /// Verbs it serves.
    pub verbs: Vec<String>,
}

/// Source of a kind's schema.
#[derive(Clone, Debug)]
pub enum KindSchema {
    /// A built-in type.
    Builtin(&'static orlop_api::schema::builtin::TypeEntry),
    /// A schema that was given at run time.
    Owned(Arc<Schema>),
    /// A schema that is built on first use.
    Lazy(Arc<dyn LazySchema>),
}

/// A schema that is built on first use.
pub trait LazySchema: fmt::Debug + Send + Sync {
    /// Returns the schema, building it on first use.
    fn schema(&self) -> &Schema;

    /// Returns a digest that identifies the schema, without building it.
    fn fingerprint(&self) -> &str;

    /// Returns true once the schema has been built.
    fn is_built(&self) -> bool;
}

impl KindSchema {
    /// Returns true if the schema needs no more building.
    pub fn is_built(&self) -> bool {
        match self {
            Self::Lazy(source) => source.is_built(),
            Self::Builtin(_) | Self::Owned(_) => true,
        }
    }

    /// Returns the schema.
    pub fn get(&self) -> &Schema {
        match self {
            Self::Builtin(entry) => entry.schema(),
            Self::Owned(schema) => schema,
            Self::Lazy(source) => source.schema(),
        }
    }
}

impl Kind {
    /// Returns group and resource: `deployments.apps`.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.gvk.group.clone(), self.resource.clone())
    }

    /// Returns group and kind: `Deployment.apps`. The Events of both groups are one kind, of the core group.
    pub fn group_kind(&self) -> GroupKind {
        if self.gvk.group == "events.k8s.io" {
            return GroupKind::new("", self.gvk.kind.clone());
        }
        self.gvk.group_kind()
    }

    /// Returns the subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// Returns true if the kind has a status subresource.
    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }

    /// Returns true if the kind serves a verb.
    pub fn allows(&self, verb: &str) -> bool {
        self.verbs.iter().any(|allowed| allowed == verb)
    }

    /// Applies defaults to an object.
    pub(crate) fn set_defaults(&self, object: &mut Value) {
        // Empty lists and maps of metadata are the same as absent, and never served. An empty list of managedFields in
        // a built-in kind resets them.
        metadata_mut(object).retain(|field, value| match value {
            Value::Array(items) => !items.is_empty() || (field == "managedFields" && !self.flags.custom),
            Value::Object(map) => !map.is_empty(),
            value => !value.is_null(),
        });
        let schema = self.schema.get();
        schema::canonicalize(object, schema);
        schema::apply_defaults(object, schema);
        self.strategy.set_defaults(object);
    }

    /// Returns the kind that stores the objects.
    pub(crate) fn stored_kind(&self) -> &Self {
        self.storage.of.as_deref().unwrap_or(self)
    }

    /// Returns the part that all keys of its objects share: `group/resource/`.
    pub fn key_prefix(&self) -> String {
        let kind = self.stored_kind();
        let group = if kind.gvk.group.is_empty() { "core" } else { &kind.gvk.group };
        [group, "/", &kind.resource, "/"].concat()
    }
}

/// Drops unknown fields of an object, and returns their paths. `custom` is true for the schema of a
/// CustomResourceDefinition.
pub(crate) fn prune(object: &mut Value, schema: &Schema, custom: bool) -> Result<Vec<String>, FieldError> {
    let mut unknown = Vec::new();
    if custom {
        unknown = schema::coerce_metadata(object, schema, Malformed::Refuse)?;
    }
    // The schema of a definition does not describe metadata.
    let root = if custom { Root::Resource } else { Root::Plain };
    unknown.extend(schema::prune(object, schema, root));
    Ok(unknown)
}

/// A trait object that a declaration shares, or that a kind made at run time owns.
pub enum StaticOrBoxed<T: ?Sized + 'static> {
    /// Shared, for the life of the program.
    Static(&'static T),
    /// Owned by the kind.
    Boxed(Box<T>),
}

impl<T: ?Sized> Deref for StaticOrBoxed<T> {
    type Target = T;

    fn deref(&self) -> &T {
        match self {
            Self::Static(shared) => shared,
            Self::Boxed(owned) => owned,
        }
    }
}

impl<T: ?Sized> fmt::Debug for StaticOrBoxed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StaticOrBoxed").finish_non_exhaustive()
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
