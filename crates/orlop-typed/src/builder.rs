//! How a type is made into a kind.

use std::{fmt, sync::Arc};

use orlop_api::{group_version::GroupVersionKind, names::NameRule, schema::from_openapi};
use orlop_server::registry::{
    Convert, Kind, KindSchema, Retirement, StaticOrBoxed, Storage, StrategyFlags, Subresource, remote::Remote,
};
use schemars::JsonSchema;
use serde::{Serialize, de::DeserializeOwned};

use crate::{
    hooks::{Adapter, Behaviour, ByItself, typed_columns},
    schema,
};

/// Everything that can be done with a kind.
const EVERYTHING: &[&str] =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];

/// A kind in the making. What is not said has the default most kinds want: namespaced, all verbs, its
/// plural made by adding an `s`, kept in the server's store.
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
    behaviour: Box<dyn Behaviour<T>>,
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
    /// A kind of this group, version and name.
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
            behaviour: Box::new(ByItself),
            gvk,
        }
    }

    /// The plural, where an `s` does not make it.
    #[must_use]
    pub fn plural(self, plural: &str) -> Self {
        Self { plural: plural.to_owned(), ..self }
    }

    /// Its objects are not in namespaces.
    #[must_use]
    pub fn cluster_scoped(self) -> Self {
        Self { namespaced: false, ..self }
    }

    /// Only these verbs are offered: `["get", "list", "watch"]` for a kind that can only be read,
    /// `["create"]` for one that is asked something.
    #[must_use]
    pub fn verbs<const N: usize>(self, verbs: [&str; N]) -> Self {
        Self { verbs: verbs.map(str::to_owned).into(), ..self }
    }

    /// What kubectl may also call it.
    #[must_use]
    pub fn short_names<const N: usize>(self, names: [&str; N]) -> Self {
        Self { short_names: names.map(str::to_owned).into(), ..self }
    }

    /// Groups of resources it is in, such as `all`.
    #[must_use]
    pub fn categories<const N: usize>(self, categories: [&str; N]) -> Self {
        Self { categories: categories.map(str::to_owned).into(), ..self }
    }

    /// Its `status` is written apart from the rest.
    #[must_use]
    pub fn with_status(self) -> Self {
        Self { status: true, ..self }
    }

    /// How names are checked.
    #[must_use]
    pub fn names(self, name_rule: NameRule) -> Self {
        Self { name_rule, ..self }
    }

    /// A field that selectors may name, such as `spec.color`. It is answered from the index.
    #[must_use]
    pub fn indexed(mut self, path: &str) -> Self {
        self.indexed.push(path.to_owned());
        self
    }

    /// What the type does beyond its schema.
    #[must_use]
    pub fn behaviour(self, behaviour: impl Behaviour<T>) -> Self {
        Self { behaviour: Box::new(behaviour), ..self }
    }

    /// Its objects are another kind's, in another form.
    #[must_use]
    pub fn translation_of(self, kind: Arc<Kind>, convert: impl Convert + 'static) -> Self {
        Self { storage: Storage::translated(kind, Arc::new(convert)), ..self }
    }

    /// Its objects are kept by another API server, under the same group, version and plural.
    #[must_use]
    pub fn remote(self, remote: impl Remote + 'static) -> Self {
        Self { storage: Storage::remote(&self.gvk, Arc::new(remote)), ..self }
    }

    /// The kind.
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
            columns: typed_columns(&*self.behaviour),
            strategy: StaticOrBoxed::Boxed(Box::new(Adapter::new(self.behaviour, shape, published))),
            retirement: Retirement::default(),
            gvk: self.gvk,
        }
    }
}
