//! Builder of typed kinds.

use std::{fmt, sync::Arc};

use orlop_api::{group_version::GroupVersionKind, names::NameRule, schema::from_openapi};
use orlop_server::registry::{
    Convert, Kind, KindSchema, Retirement, StaticOrBoxed, Storage, StrategyFlags, Subresource, remote::Remote,
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    schema,
    strategy::{Adapter, NoStrategy, TypedStrategy, typed_columns},
};

/// All verbs.
const EVERYTHING: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// Builds a kind. Defaults: namespaced, all verbs, the plural with an `s`, stored in the server's store.
pub struct Builder<T> {
    gvk: GroupVersionKind,
    plural: String,
    namespaced: bool,
    verbs: Vec<String>,
    short_names: Vec<String>,
    categories: Vec<String>,
    status: bool,
    name_rule: NameRule,
    indexed: Vec<String>,
    storage: Storage,
    strategy: Box<dyn TypedStrategy<T>>,
}

impl<T> fmt::Debug for Builder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("gvk", &self.gvk).finish_non_exhaustive()
    }
}

impl<T> Builder<T>
where
    T: Serialize + DeserializeOwned + JsonSchema + Send + Sync + 'static,
{
    /// Starts a kind of this group, version and name.
    pub fn new(group: &str, version: &str, kind: &str) -> Self {
        let gvk = GroupVersionKind::new(group, version, kind);
        Self {
            plural: format!("{}s", kind.to_lowercase()),
            namespaced: true,
            verbs: EVERYTHING.iter().map(|verb| (*verb).to_owned()).collect(),
            short_names: Vec::new(),
            categories: Vec::new(),
            status: false,
            name_rule: NameRule::Subdomain,
            indexed: Vec::new(),
            storage: Storage::own(&gvk),
            strategy: Box::new(NoStrategy),
            gvk,
        }
    }

    /// Sets the plural name.
    #[must_use]
    pub fn plural(self, plural: &str) -> Self {
        Self { plural: plural.to_owned(), ..self }
    }

    /// Makes the kind cluster-scoped.
    #[must_use]
    pub fn cluster_scoped(self) -> Self {
        Self { namespaced: false, ..self }
    }

    /// Restricts the verbs: `["get", "list", "watch"]` for a read-only kind, `["create"]` for a review.
    #[must_use]
    pub fn verbs<const N: usize>(self, verbs: [&str; N]) -> Self {
        Self { verbs: verbs.map(str::to_owned).into(), ..self }
    }

    /// Sets short names.
    #[must_use]
    pub fn short_names<const N: usize>(self, names: [&str; N]) -> Self {
        Self { short_names: names.map(str::to_owned).into(), ..self }
    }

    /// Sets categories, such as `all`.
    #[must_use]
    pub fn categories<const N: usize>(self, categories: [&str; N]) -> Self {
        Self { categories: categories.map(str::to_owned).into(), ..self }
    }

    /// Adds the status subresource.
    #[must_use]
    pub fn with_status(self) -> Self {
        Self { status: true, ..self }
    }

    /// Sets the name rule.
    #[must_use]
    pub fn names(self, name_rule: NameRule) -> Self {
        Self { name_rule, ..self }
    }

    /// Adds a selectable field, such as `spec.color`, which is indexed.
    #[must_use]
    pub fn indexed(mut self, path: &str) -> Self {
        self.indexed.push(path.to_owned());
        self
    }

    /// Sets the strategy.
    #[must_use]
    pub fn strategy(self, strategy: impl TypedStrategy<T>) -> Self {
        Self { strategy: Box::new(strategy), ..self }
    }

    /// Stores objects as those of another kind, converted on reads and writes.
    #[must_use]
    pub fn translation_of(self, kind: Arc<Kind>, convert: impl Convert + 'static) -> Self {
        Self { storage: Storage::translated(kind, Arc::new(convert)), ..self }
    }

    /// Forwards requests to another API server, which serves the same group, version and plural.
    #[must_use]
    pub fn remote(self, remote: impl Remote + 'static) -> Self {
        Self { storage: Storage::remote(&self.gvk, Arc::new(remote)), ..self }
    }

    /// Returns the kind.
    pub fn build(self) -> Kind {
        let published = schema::of::<T>();
        let shape = Arc::new(from_openapi(&published));
        let status = Subresource {
            name: "status".into(),
            gvk: self.gvk.clone(),
            verbs: ["get", "patch", "update"].map(str::to_owned).into(),
        };
        Kind {
            list_kind: format!("{}List", self.gvk.kind),
            singular: self.gvk.kind.to_lowercase(),
            resource: self.plural,
            namespaced: self.namespaced,
            verbs: self.verbs,
            short_names: self.short_names,
            categories: self.categories,
            subresources: self.status.then_some(status).into_iter().collect(),
            schema: KindSchema::Owned(shape.clone()),
            storage: self.storage,
            name_rule: self.name_rule,
            flags: StrategyFlags::CUSTOM,
            selectable_fields: self.indexed,
            immortal_names: &[],
            update_scopes: &[],
            columns: typed_columns(&*self.strategy),
            strategy: StaticOrBoxed::Boxed(Box::new(Adapter::new(self.strategy, shape, published))),
            retirement: Retirement::default(),
            gvk: self.gvk,
        }
    }
}
