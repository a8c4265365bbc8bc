//! Admission: plugins that change or refuse writes after authorization and before storage.
//!
//! Modules form layers; each imports only those above it in this list:
//!
//! ```text
//! listers        the objects that plugins read
//! matching       rules, selectors and conditions of webhooks and policies
//! webhook        mutating and validating webhooks
//! configuration  the AdmissionConfiguration file
//! policy         ValidatingAdmissionPolicy and MutatingAdmissionPolicy
//! metrics        metrics of plugins, webhooks, policies and the chain
//! plugins        built-in plugins, a file each
//! chain          all plugins in order: selection, the mutating and the validating pass, reinvocation
//! ```
//!
//! Nothing here touches the store: the server implements [`listers::Listers`].

pub mod chain;
pub mod configuration;
pub mod listers;
pub mod matching;
mod metrics;
pub mod plugins;
pub mod policy;
pub mod webhook;

use std::{
    any::Any,
    borrow::Cow,
    collections::HashMap,
    fmt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use orlop_api::{
    group_version::{GroupResource, GroupVersionKind, GroupVersionResource},
    object_meta,
    status::{Reason, Status},
    warnings::Warnings,
};
use orlop_auth::request::Attributes;
use serde_json::Value;

pub use self::metrics::AdmissionMetrics;

/// The operation that is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an object: update, patch or apply.
    Update,
    /// A deletion. There is no new object.
    Delete,
    /// A connection, such as exec. The object is its options.
    Connect,
}

impl Operation {
    /// All operations.
    pub const ALL: [Self; 4] = [Self::Create, Self::Update, Self::Delete, Self::Connect];

    /// Returns the name in AdmissionReview, such as `CREATE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Create => "CREATE",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
            Self::Connect => "CONNECT",
        }
    }
}

/// The two passes over the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Plugins may change the object. It is not validated yet.
    Mutating,
    /// Plugins may only refuse what would be stored.
    Validating,
}

impl Phase {
    /// Both passes, in order.
    pub const ALL: [Self; 2] = [Self::Mutating, Self::Validating];
}

/// A write that is admitted.
#[derive(Clone)]
pub struct AdmissionRequest<'a> {
    /// The operation.
    pub operation: Operation,
    /// The user, resource, subresource and namespace.
    pub attributes: &'a Attributes,
    /// Name of the object; empty for a new one whose name is generated.
    pub name: Cow<'a, str>,
    /// The kind of the object.
    pub kind: &'a GroupVersionKind,
    /// Returns CreateOptions, UpdateOptions, PatchOptions or DeleteOptions. Few plugins need them.
    pub options: &'a (dyn Fn() -> Value + Send + Sync),
    /// True if nothing is stored.
    pub dry_run: bool,
    /// Warnings for the client.
    pub warnings: &'a Warnings,
    /// The audit event, if the request is audited.
    pub audit: Option<&'a orlop_audit::Context>,
    /// State of reinvocation of the mutating pass.
    pub reinvocation: &'a Reinvocation,
    /// Time at which the request is answered in any case, if it has a limit.
    pub deadline: Option<Instant>,
}

impl fmt::Debug for AdmissionRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmissionRequest")
            .field("operation", &self.operation)
            .field("attributes", &self.attributes)
            .field("name", &self.name)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

impl AdmissionRequest<'_> {
    /// Returns the group and resource, without the subresource.
    pub fn group_resource(&self) -> GroupResource {
        GroupResource::new(self.attributes.group.clone(), self.attributes.resource.clone())
    }

    /// Returns true if the request is for this resource.
    pub fn is_for(&self, group: &str, resource: &str) -> bool {
        self.attributes.resource == resource && self.attributes.group == group
    }

    /// Returns the subresource; empty for the object itself.
    pub fn subresource(&self) -> &str {
        self.attributes.subresource_name()
    }

    /// Returns the namespace of the object; empty for one of the cluster.
    pub fn namespace(&self) -> &str {
        &self.attributes.namespace
    }

    /// Returns the time that the request has left, if it has a limit.
    pub fn remaining(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns the namespace as webhooks and policies see it: that of a Namespace is its name.
    pub fn review_namespace(&self) -> &str {
        if self.is_for("", "namespaces") { &self.name } else { self.namespace() }
    }

    /// Returns the resource in the version of the request, without the subresource.
    pub fn resource(&self) -> GroupVersionResource {
        let Attributes { group, version, resource, .. } = self.attributes;
        GroupVersionResource::new(group, version, resource)
    }

    /// Adds a warning for the client.
    pub fn warn(&self, warning: impl Into<String>) {
        self.warnings.add(warning);
    }

    /// Adds an annotation to the audit event. The first value of a key counts.
    pub fn annotate(&self, key: impl Into<Cow<'static, str>>, value: impl Into<Cow<'static, str>>) {
        if let Some(audit) = self.audit {
            audit.annotate(key, value);
        }
    }

    /// Returns Forbidden for the object, with its name as Kubernetes finds it before names are generated.
    pub fn forbidden(&self, object: &Value, why: impl AsRef<str>) -> Status {
        Status::forbidden(&self.group_resource(), self.display_name(object), why.as_ref())
    }

    /// Returns an error as Forbidden, unless it is that already.
    pub fn forbidden_by(&self, object: &Value, error: Status) -> Status {
        if error.reason == Reason::Forbidden { error } else { self.forbidden(object, error.message) }
    }

    fn display_name<'b>(&'b self, object: &'b Value) -> &'b str {
        let meta = object_meta::of(object);
        let names = [&*self.name, object_meta::text(meta, "name"), object_meta::text(meta, "generateName")];
        names.into_iter().find(|name| !name.is_empty()).unwrap_or("Unknown")
    }
}

/// Resources that a plugin handles.
#[derive(Clone, Copy, Debug)]
pub enum Resources {
    /// All resources.
    All,
    /// These resources, by group and plural name, with all their subresources.
    Only(&'static [(&'static str, &'static str)]),
}

/// An admission plugin.
///
/// The chain asks [`resources`](Self::resources) and [`handles`](Self::handles) once, when it is built: a plugin costs
/// nothing in requests that it does not handle.
#[async_trait]
pub trait Admission: fmt::Debug + Send + Sync {
    /// Returns the resources that the plugin handles.
    fn resources(&self) -> Resources {
        Resources::All
    }

    /// Returns true if the plugin takes part in a pass for an operation.
    fn handles(&self, _phase: Phase, _operation: Operation) -> bool {
        true
    }

    /// Returns true if the plugin has nothing to do for a request: it is not called then. For plugins that handle all
    /// resources and are mostly without configuration; it must be quick.
    fn is_idle(&self, _phase: Phase, _request: &AdmissionRequest<'_>) -> bool {
        false
    }

    /// Changes an object before it is validated. `object` is null on delete, `old` is absent on create. Managed fields
    /// have been recorded by then: fields that a plugin sets have no owner.
    async fn mutate(
        &self,
        _request: &AdmissionRequest<'_>,
        _object: &mut Value,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        Ok(())
    }

    /// Refuses a write. `object` is what would be stored, and absent on delete; `old` is absent on create.
    async fn validate(
        &self,
        _request: &AdmissionRequest<'_>,
        _object: Option<&Value>,
        _old: Option<&Value>,
    ) -> Result<(), Status> {
        Ok(())
    }
}

/// State of one request's mutating passes. A plugin that calls others (webhooks, policies) may ask for a second pass,
/// in which every plugin runs once more, and keep values of its own between the two.
#[derive(Debug, Default)]
pub struct Reinvocation {
    requested: AtomicBool,
    is_second_pass: AtomicBool,
    values: Mutex<HashMap<&'static str, Box<dyn Any + Send>>>,
}

impl Reinvocation {
    /// Asks for a second pass. Has no effect in the second.
    pub fn request(&self) {
        self.requested.store(true, Ordering::Relaxed);
    }

    /// Returns true in the second pass.
    pub fn is_second_pass(&self) -> bool {
        self.is_second_pass.load(Ordering::Relaxed)
    }

    /// Begins the second pass if one was asked for and has not begun.
    pub(crate) fn begin_second_pass(&self) -> bool {
        self.requested.load(Ordering::Relaxed) && !self.is_second_pass.swap(true, Ordering::Relaxed)
    }

    /// Calls `work` with the plugin's value, which is its default at first.
    pub fn with_value<T: Any + Default + Send, R>(
        &self,
        plugin: &'static str,
        work: impl FnOnce(&mut T) -> R,
    ) -> R {
        let mut values = self.values.lock().unwrap_or_else(PoisonError::into_inner);
        let value = values.entry(plugin).or_insert_with(|| Box::new(T::default()));
        match value.downcast_mut::<T>() {
            Some(value) => work(value),
            None => work(&mut T::default()),
        }
    }
}
