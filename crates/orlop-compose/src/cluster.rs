//! The API server as this crate sees it: objects of any kind as JSON, and what is known of their kinds.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::{Method, Request};
use orlop_client::Client;
use orlop_client::object_json;
use serde_json::{Value as Json, json};
use tokio::sync::Semaphore;

use crate::kinds::{Gvk, Kind, Kinds, schema_from_document};
use crate::metrics::{Count, Level, Metrics, Size, Time};

/// Objects per page of a list.
const PAGE: &str = "500";
/// Time limit of one call.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Requests at once. Each has a connection of its own, and the client keeps no more than a few: what goes beyond costs a
/// TLS handshake for every request.
const REQUESTS_MAX: usize = 24;
/// Kinds kept in memory before those that no graph uses are dropped.
const KINDS_KEPT: usize = 256;

/// Result of a call.
pub(crate) type Result<T> = std::result::Result<T, orlop_client::Error>;

/// Kinds with the address of the document that they come from.
type KindCache = HashMap<Gvk, (String, Arc<Kind>)>;

/// A way to the API server. Clones share the cache of kinds.
#[derive(Clone)]
pub(crate) struct Cluster {
    client: Client,
    /// User that calls are made as.
    impersonate: Option<Arc<str>>,
    kinds: Arc<Mutex<KindCache>>,
    slots: Arc<Semaphore>,
    metrics: Metrics,
}

/// Shape of an answer.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Object,
    List,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

/// Where objects of a kind are served.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Resource {
    pub(crate) gvk: Gvk,
    pub(crate) plural: String,
    pub(crate) namespaced: bool,
}

impl From<&Kind> for Resource {
    fn from(kind: &Kind) -> Self {
        Self { gvk: kind.gvk.clone(), plural: kind.plural.clone(), namespaced: kind.namespaced }
    }
}

/// Go's `schema.GroupVersionResource` as text, which metrics carry.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}, Resource={}", self.gvk.group, self.gvk.version, self.plural)
    }
}

impl Resource {
    /// Path of a collection, or of an object if `name` is given.
    fn path(&self, namespace: Option<&str>, name: Option<&str>) -> String {
        let Gvk { group, version, .. } = &self.gvk;
        let mut path =
            if group.is_empty() { format!("/api/{version}") } else { format!("/apis/{group}/{version}") };
        if let Some(namespace) = namespace.filter(|_| self.namespaced) {
            path.push_str("/namespaces/");
            path.push_str(&encode(namespace));
        }
        path.push('/');
        path.push_str(&self.plural);
        if let Some(name) = name {
            path.push('/');
            path.push_str(&encode(name));
        }
        path
    }
}

/// Percent-encodes a path segment: names come from expressions.
fn encode(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'~' => out.push(char::from(byte)),
            b'.' if segment != "." && segment != ".." => out.push('.'),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// Appends a query; pairs without a value are left out.
fn with_query(path: &str, pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs.iter().filter(|(_, value)| !value.is_empty()));
    format!("{path}?{}", query.finish())
}

impl Cluster {
    pub(crate) fn new(client: Client, metrics: Metrics) -> Self {
        let slots = Arc::new(Semaphore::new(REQUESTS_MAX));
        Self { client, impersonate: None, kinds: Arc::default(), slots, metrics }
    }

    /// The metrics that calls are counted in.
    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The client beneath.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    /// The same cluster as a service account. The server adds the groups of service accounts by itself, so the controller
    /// needs no right to impersonate groups.
    pub(crate) fn as_service_account(&self, namespace: &str, name: &str) -> Self {
        let user = format!("system:serviceaccount:{namespace}:{name}");
        Self { impersonate: Some(user.into()), ..self.clone() }
    }

    async fn call(&self, method: Method, path: &str, content: Option<(&str, &Json)>) -> Result<Json> {
        self.call_for(Shape::Object, method, path, content).await
    }

    async fn call_for(
        &self,
        shape: Shape,
        method: Method,
        path: &str,
        content: Option<(&str, &Json)>,
    ) -> Result<Json> {
        let verb = method.to_string();
        let mut request = Request::builder().method(method).uri(path);
        if let Some(impersonate) = &self.impersonate {
            request = request.header("Impersonate-User", &**impersonate);
        }
        let body = match content {
            Some((content_type, body)) => {
                request = request.header("Content-Type", content_type);
                object_json::encode(body)
            }
            None => Vec::new(),
        };
        self.metrics.sized(Size::Request, &[("verb", &verb)], body.len());
        let request = request.body(body).map_err(orlop_client::Error::HttpError)?;
        // The semaphore is never closed.
        let _slot = self.slots.acquire().await;
        let began = Instant::now();
        let answered = async {
            match shape {
                Shape::Object => self.client.request_object(request).await,
                Shape::List => self.client.request_list(request).await,
            }
        };
        let result = match tokio::time::timeout(TIMEOUT, answered).await {
            Ok(result) => result,
            Err(_) => {
                Err(orlop_client::Error::Service(format!("no answer within {} s", TIMEOUT.as_secs()).into()))
            }
        };
        self.metrics.took(Time::Request, &[("verb", &verb)], began.elapsed());
        let code = match &result {
            Ok(_) => "200".to_owned(),
            Err(error) => code(error).map_or_else(|| "<error>".to_owned(), |code| code.to_string()),
        };
        self.metrics.count(Count::Requests, &[("code", &code), ("method", &verb)]);
        if code == "429" || code.starts_with('5') {
            self.metrics.count(Count::Retries, &[("code", &code), ("method", &verb)]);
        }
        result
    }

    /// Reads an object; `None` if it, or its kind, is not there.
    pub(crate) async fn get(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Json>> {
        match self.call(Method::GET, &resource.path(namespace, Some(name)), None).await {
            Ok(object) => Ok(Some(tidy(object, resource))),
            Err(error) if code(&error) == Some(404) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists objects by label selector; nothing if their kind is not served.
    pub(crate) async fn list(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &str,
    ) -> Result<Vec<Json>> {
        self.list_where(resource, namespace, selector, "").await
    }

    /// Lists objects by label and field selector.
    pub(crate) async fn list_where(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        selector: &str,
        fields: &str,
    ) -> Result<Vec<Json>> {
        let mut items = Vec::new();
        let mut next = String::new();
        loop {
            let pairs = [
                ("limit", PAGE),
                ("labelSelector", selector),
                ("fieldSelector", fields),
                ("continue", &next),
            ];
            let path = with_query(&resource.path(namespace, None), &pairs);
            let mut page = match self.call_for(Shape::List, Method::GET, &path, None).await {
                Ok(page) => page,
                Err(error) if code(&error) == Some(404) => return Ok(items),
                // The page is too old: start over with a whole list.
                Err(error) if code(&error) == Some(410) && !next.is_empty() => {
                    items.clear();
                    next.clear();
                    continue;
                }
                Err(error) => return Err(error),
            };
            if let Some(Json::Array(found)) = page.get_mut("items").map(Json::take) {
                items.extend(found.into_iter().map(|item| tidy(item, resource)));
            }
            match page.pointer("/metadata/continue").and_then(Json::as_str) {
                Some(more) if !more.is_empty() => next = more.to_owned(),
                _ => return Ok(items),
            }
        }
    }

    /// Applies an object as a field manager, with force.
    pub(crate) async fn apply(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        manager: &str,
        object: &Json,
    ) -> Result<Json> {
        let options = [("fieldManager", manager), ("force", "true")];
        self.apply_with(resource, namespace, name, object, &options).await
    }

    /// Applies an object as a field manager, unless it has values of another one.
    pub(crate) async fn apply_unforced(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        manager: &str,
        object: &Json,
    ) -> Result<Json> {
        self.apply_with(resource, namespace, name, object, &[("fieldManager", manager)]).await
    }

    /// Shows what applying an object would make of it, without writing.
    pub(crate) async fn apply_dry_run(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        manager: &str,
        object: &Json,
    ) -> Result<Json> {
        let options = [("fieldManager", manager), ("force", "true"), ("dryRun", "All")];
        self.apply_with(resource, namespace, name, object, &options).await
    }

    async fn apply_with(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        object: &Json,
        options: &[(&str, &str)],
    ) -> Result<Json> {
        let path = with_query(&resource.path(namespace, Some(name)), options);
        let applied = self.call(Method::PATCH, &path, Some(("application/apply-patch+yaml", object))).await?;
        Ok(tidy(applied, resource))
    }

    /// Merges a patch into an object.
    pub(crate) async fn merge(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        patch: &Json,
    ) -> Result<Json> {
        let path = resource.path(namespace, Some(name));
        self.call(Method::PATCH, &path, Some(("application/merge-patch+json", patch))).await
    }

    /// Creates an object.
    pub(crate) async fn create(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        object: &Json,
    ) -> Result<Json> {
        self.call(Method::POST, &resource.path(namespace, None), Some(("application/json", object))).await
    }

    /// Replaces the status of an object that was read.
    pub(crate) async fn replace_status(&self, resource: &Resource, object: &Json) -> Result<Json> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Json::as_str);
        let name = text("/metadata/name").unwrap_or_default();
        let path = format!("{}/status", resource.path(text("/metadata/namespace"), Some(name)));
        Ok(tidy(self.call(Method::PUT, &path, Some(("application/json", object))).await?, resource))
    }

    /// Deletes an object if it still has this uid; `false` if another object has its name by now.
    pub(crate) async fn delete(
        &self,
        resource: &Resource,
        namespace: Option<&str>,
        name: &str,
        uid: &str,
    ) -> Result<bool> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background",
            "preconditions": {"uid": uid}});
        let path = resource.path(namespace, Some(name));
        match self.call(Method::DELETE, &path, Some(("application/json", &options))).await {
            Ok(_) => Ok(true),
            Err(error) if code(&error) == Some(404) => Ok(true),
            Err(error) if code(&error) == Some(409) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Finds the resource of a kind; `None` if it is not served.
    pub(crate) async fn resource(&self, gvk: &Gvk) -> Result<Option<Resource>> {
        let path = if gvk.group.is_empty() {
            format!("/api/{}", encode(&gvk.version))
        } else {
            format!("/apis/{}/{}", encode(&gvk.group), encode(&gvk.version))
        };
        let list = match self.call(Method::GET, &path, None).await {
            Ok(list) => list,
            Err(error) if code(&error) == Some(404) => return Ok(None),
            Err(error) => return Err(error),
        };
        let resources = list.get("resources").and_then(Json::as_array).into_iter().flatten();
        let found = resources.filter_map(|resource| {
            let plural = resource.get("name")?.as_str()?;
            let kind = resource.get("kind")?.as_str()?;
            let namespaced = resource.get("namespaced")?.as_bool()?;
            (kind == gvk.kind && !plural.contains('/')).then(|| (plural.to_owned(), namespaced))
        });
        let found = found.into_iter().next();
        Ok(found.map(|(plural, namespaced)| Resource { gvk: gvk.clone(), plural, namespaced }))
    }

    /// Finds the resource of a group and kind in the version that the server prefers.
    pub(crate) async fn preferred_resource(&self, group: &str, kind: &str) -> Result<Option<Resource>> {
        if group.is_empty() {
            return self.resource(&Gvk::new("v1", kind)).await;
        }
        let description = match self.call(Method::GET, &format!("/apis/{}", encode(group)), None).await {
            Ok(description) => description,
            Err(error) if code(&error) == Some(404) => return Ok(None),
            Err(error) => return Err(error),
        };
        let preferred = description.pointer("/preferredVersion/version").and_then(Json::as_str);
        let all = description.get("versions").and_then(Json::as_array).into_iter().flatten();
        let all = all.filter_map(|version| version.get("version").and_then(Json::as_str));
        for version in preferred.into_iter().chain(all) {
            let gvk = Gvk { group: group.to_owned(), version: version.to_owned(), kind: kind.to_owned() };
            if let Some(resource) = self.resource(&gvk).await? {
                return Ok(Some(resource));
            }
        }
        Ok(None)
    }

    /// Reads kinds with their schemas. Those that are not served are left out.
    ///
    /// A schema is kept until the document that it comes from gets another address, which carries its hash.
    pub(crate) async fn kinds(&self, wanted: &BTreeSet<Gvk>) -> Result<Kinds> {
        let mut kinds = Kinds::new();
        if wanted.is_empty() {
            return Ok(kinds);
        }
        let index = self.call(Method::GET, "/openapi/v3", None).await?;
        for gvk in wanted {
            let key = if gvk.group.is_empty() {
                format!("api/{}", gvk.version)
            } else {
                format!("apis/{}/{}", gvk.group, gvk.version)
            };
            let address = index
                .get("paths")
                .and_then(|paths| paths.get(&key))
                .and_then(|path| path.get("serverRelativeURL"));
            let Some(address) = address.and_then(Json::as_str) else { continue };
            let cached = self.kinds.lock().unwrap_or_else(PoisonError::into_inner).get(gvk).cloned();
            if let Some((_, kind)) = cached.filter(|(known, _)| known == address) {
                self.metrics.count(Count::SchemaHits, &[]);
                kinds.insert(gvk.clone(), kind);
                continue;
            }
            self.metrics.count(Count::SchemaMisses, &[]);
            let began = Instant::now();
            let read = async {
                let Some(resource) = self.resource(gvk).await? else { return Ok(None) };
                let document = self.call(Method::GET, address, None).await?;
                Ok(schema_from_document(gvk, &document).map(|schema| (resource, schema)))
            };
            let read: Result<_> = read.await;
            self.metrics.took(Time::SchemaCall, &[], began.elapsed());
            let found = read.inspect_err(|_| self.metrics.count(Count::SchemaErrors, &[]))?;
            let Some((resource, schema)) = found else { continue };
            let Resource { plural, namespaced, .. } = resource;
            let kind = Arc::new(Kind { gvk: gvk.clone(), plural, namespaced, schema });
            let entry = (address.to_owned(), kind.clone());
            self.cache(gvk, entry);
            kinds.insert(gvk.clone(), kind);
        }
        Ok(kinds)
    }

    /// Caches a kind; evicts those that no graph uses once there are many.
    fn cache(&self, gvk: &Gvk, entry: (String, Arc<Kind>)) {
        let mut cached = self.kinds.lock().unwrap_or_else(PoisonError::into_inner);
        cached.insert(gvk.clone(), entry);
        if cached.len() > KINDS_KEPT {
            let before = cached.len();
            cached.retain(|other, (_, kind)| other == gvk || Arc::strong_count(kind) > 1);
            self.metrics.add(Count::SchemaEvictions, &[], (before - cached.len()) as u64);
        }
        self.metrics.set(Level::Schemas, &[], cached.len());
    }
}

/// Fills in what lists leave out.
fn tidy(mut object: Json, resource: &Resource) -> Json {
    if let Some(fields) = object.as_object_mut() {
        fields.entry("apiVersion").or_insert_with(|| json!(resource.gvk.api_version()));
        fields.entry("kind").or_insert_with(|| json!(resource.gvk.kind));
    }
    object
}

/// The HTTP status of an error, if the server answered.
pub(crate) fn code(error: &orlop_client::Error) -> Option<u16> {
    match error {
        orlop_client::Error::Api(status) => Some(status.code),
        _ => None,
    }
}

/// The server's text of an error.
pub(crate) fn message(error: &orlop_client::Error) -> String {
    match error {
        orlop_client::Error::Api(status) => status.message.clone(),
        other => other.to_string(),
    }
}
