//! Declaration of a built-in kind.
//!
//! Discovery facts (version, kind, scope, verbs, short names, categories, subresources) come from the generated
//! table `orlop-api/data/resources.tsv`. A declaration is found there by group and resource, and adds what
//! kube-apiserver keeps in the kind's strategy and printer.

use std::fmt;

use orlop_api::names::NameRule;

use crate::{
    conversion::{BuiltinConverter, Conversion},
    strategy::{DefaultStrategy, Strategy},
    table::{Columns, DEFAULT_COLUMNS},
    update_scope::UpdateScopes,
};

/// A built-in kind: strategy flags first, hooks after.
#[derive(Clone, Copy)]
pub struct BuiltinKind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Plural name, as in paths.
    pub resource: &'static str,
    /// Rule for `metadata.name`.
    pub name_rule: NameRule,
    /// Strategy flags.
    pub flags: StrategyFlags,
    /// Fields that field selectors may name, besides `metadata.name` and `metadata.namespace`.
    pub selectable_fields: &'static [&'static str],
    /// Names of objects that cannot be deleted.
    pub immortal_names: &'static [&'static str],
    /// Update scopes by endpoint, where they differ from the defaults.
    pub update_scopes: UpdateScopes,
    /// Columns of `kubectl get`.
    pub columns: &'static dyn Columns,
    /// Hooks.
    pub strategy: &'static dyn Strategy,
    /// Conversion of one of its versions, where another kind stores the objects of that version.
    pub conversion: Option<&'static Conversion>,
}

impl BuiltinKind {
    /// Returns the declaration of a kind that its schema describes completely.
    pub const fn new(group: &'static str, resource: &'static str) -> Self {
        Self {
            group,
            resource,
            name_rule: NameRule::Subdomain,
            flags: StrategyFlags::BUILTIN,
            selectable_fields: &[],
            immortal_names: &[],
            update_scopes: &[],
            columns: &DEFAULT_COLUMNS,
            strategy: &DefaultStrategy,
            conversion: None,
        }
    }

    /// Returns the converter of a version; `None` where objects are stored in that version.
    pub fn converter(&self, version: &str) -> Option<BuiltinConverter> {
        let conversion = self.conversion.filter(|conversion| conversion.version == version)?;
        BuiltinConverter::new(self.group, conversion)
    }
}

impl fmt::Debug for BuiltinKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuiltinKind")
            .field("group", &self.group)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

/// Per-kind strategy flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrategyFlags {
    /// An update without a resourceVersion overwrites the object (AllowUnconditionalUpdate).
    pub allow_unconditional_update: bool,
    /// An update of a missing object creates it (AllowCreateOnUpdate).
    pub allow_create_on_update: bool,
    /// A delete that removes the object answers with the object instead of a Status (ReturnDeletedObject).
    pub returns_deleted_object: bool,
    /// Finalizers must be Kubernetes' own or have a domain prefix.
    pub qualified_finalizers: bool,
    /// Metadata is validated only once the rest is valid: Events.
    pub validates_metadata_last: bool,
    /// An object without a name is given a UUID as its name.
    pub names_objects: bool,
    /// A delete without a propagation policy orphans dependents (DefaultGarbageCollectionPolicy).
    pub orphans_dependents_by_default: bool,
    /// The server keeps `metadata.generation`.
    pub tracks_generation: bool,
    /// A create keeps the status that the client sent.
    pub keeps_status_on_create: bool,
    /// The kind follows custom resources' rules for decoding, strict validation and defaulting.
    pub custom: bool,
    /// Lifetime of an object, in seconds.
    pub ttl_seconds: Option<u64>,
}

impl StrategyFlags {
    /// Flags of most built-in kinds.
    pub const BUILTIN: Self = Self {
        allow_unconditional_update: true,
        allow_create_on_update: false,
        returns_deleted_object: false,
        qualified_finalizers: true,
        validates_metadata_last: false,
        names_objects: false,
        orphans_dependents_by_default: false,
        tracks_generation: false,
        keeps_status_on_create: false,
        custom: false,
        ttl_seconds: None,
    };

    /// Flags of custom resources and of typed kinds.
    pub const CUSTOM: Self =
        Self { qualified_finalizers: false, tracks_generation: true, custom: true, ..Self::BUILTIN };
}
