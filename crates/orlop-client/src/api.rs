//! Requests for the objects of a kind.

use std::{fmt::Debug, marker::PhantomData};

use futures_util::future::BoxFuture;
use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::{
    Client, Error, Resource, Result,
    api::{DeleteParams, GetParams, ListParams, ObjectList, Patch, PatchParams, PostParams, TypeMeta},
    core::{NamespaceResourceScope, request},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

/// The objects of a kind, in one namespace or in all.
pub struct Api<K> {
    client: Client,
    request: request::Request,
    namespace: Option<String>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        let request = request::Request::new(self.request.url_path.clone());
        Self { client: self.client.clone(), request, namespace: self.namespace.clone(), kind: PhantomData }
    }
}

impl<K> Debug for Api<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Api").field("path", &self.request.url_path).finish_non_exhaustive()
    }
}

impl<K: Resource<DynamicType = ()>> Api<K> {
    /// Returns the objects of all namespaces, or of a cluster-scoped kind.
    pub fn all(client: Client) -> Self {
        let request = request::Request::new(K::url_path(&(), None));
        Self { client, request, namespace: None, kind: PhantomData }
    }

    /// Returns the objects of a namespace.
    pub fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        let request = request::Request::new(K::url_path(&(), Some(namespace)));
        Self { client, request, namespace: Some(namespace.to_owned()), kind: PhantomData }
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    pub(crate) fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
    }
}

impl<K: Resource<DynamicType = ()> + Clone + DeserializeOwned> Api<K> {
    /// Reads an object.
    pub async fn get(&self, name: &str) -> Result<K> {
        let options = GetParams::default();
        let built = match K::metadata_api() {
            true => self.request.get_metadata(name, &options),
            false => self.request.get(name, &options),
        };
        decode(send(&self.client, built, "get").await?)
    }

    /// Reads an object, if there is one.
    pub async fn get_opt(&self, name: &str) -> Result<Option<K>> {
        match self.get(name).await {
            Ok(object) => Ok(Some(object)),
            Err(Error::Api(status)) if status.reason == "NotFound" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists objects.
    pub async fn list(&self, options: &ListParams) -> Result<ObjectList<K>> {
        let built = match K::metadata_api() {
            true => self.request.list_metadata(options),
            false => self.request.list(options),
        };
        let list = send_list(&self.client, built).await?;
        let items = list.items.into_iter().map(decode).collect::<Result<_>>()?;
        Ok(ObjectList { types: list.types, metadata: list.metadata, items })
    }

    /// Creates an object.
    pub async fn create(&self, options: &PostParams, object: &K) -> Result<K>
    where
        K: Serialize,
    {
        decode(send(&self.client, self.request.create(options, encode(object)?), "create").await?)
    }

    /// Replaces an object.
    pub async fn replace(&self, name: &str, options: &PostParams, object: &K) -> Result<K>
    where
        K: Serialize,
    {
        decode(send(&self.client, self.request.replace(name, options, encode(object)?), "replace").await?)
    }

    /// Replaces the status of an object.
    pub async fn replace_status(&self, name: &str, options: &PostParams, object: &K) -> Result<K>
    where
        K: Serialize,
    {
        let built = self.request.replace_subresource("status", name, options, encode(object)?);
        decode(send(&self.client, built, "replace_status").await?)
    }

    /// Patches an object.
    pub async fn patch<P: Serialize + Debug>(
        &self,
        name: &str,
        options: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K> {
        let built = match K::metadata_api() {
            true => self.request.patch_metadata(name, options, patch),
            false => self.request.patch(name, options, patch),
        };
        decode(send(&self.client, built, "patch").await?)
    }

    /// Patches the status of an object.
    pub async fn patch_status<P: Serialize + Debug>(
        &self,
        name: &str,
        options: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<K> {
        let built = self.request.patch_subresource("status", name, options, patch);
        decode(send(&self.client, built, "patch_status").await?)
    }

    /// Replaces an object through a subresource.
    pub async fn replace_subresource<I: Serialize>(
        &self,
        subresource: &str,
        name: &str,
        options: &PostParams,
        data: &I,
    ) -> Result<K> {
        let built = self.request.replace_subresource(subresource, name, options, encode(data)?);
        decode(send(&self.client, built, "replace_subresource").await?)
    }

    /// Creates a subresource of an object.
    pub async fn create_subresource<I: Serialize, T: DeserializeOwned>(
        &self,
        subresource: &str,
        name: &str,
        options: &PostParams,
        data: &I,
    ) -> Result<T> {
        let built = self.request.create_subresource(subresource, name, options, encode(data)?);
        decode(send(&self.client, built, "create_subresource").await?)
    }

    /// Deletes an object. Returns it if it is still there, because of its finalizers or grace period.
    pub async fn delete(&self, name: &str, options: &DeleteParams) -> Result<Option<K>> {
        let answer = send(&self.client, self.request.delete(name, options), "delete").await?;
        match answer.get("kind").and_then(Value::as_str) {
            Some("Status") => Ok(None),
            _ => decode(answer).map(Some),
        }
    }
}

type Built = std::result::Result<Request<Vec<u8>>, request::Error>;

/// Sends a request. `verb` is for traces.
fn send(client: &Client, built: Built, verb: &'static str) -> BoxFuture<'static, Result<Value>> {
    let client = client.clone();
    Box::pin(async move {
        let mut request = built.map_err(Error::BuildRequest)?;
        request.extensions_mut().insert(verb);
        client.request(request).await
    })
}

fn send_list(client: &Client, built: Built) -> BoxFuture<'static, Result<ObjectList<Value>>> {
    let sent = send(client, built, "list");
    Box::pin(async move {
        let mut list = sent.await?;
        let mut take = |field: &str| list.get_mut(field).map(Value::take);
        let items = match take("items") {
            Some(Value::Array(items)) => items,
            _ => Vec::new(),
        };
        let metadata = take("metadata").map(decode::<ListMeta>).transpose()?.unwrap_or_default();
        let text =
            |value: Option<Value>| value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
        let types = TypeMeta { api_version: text(take("apiVersion")), kind: text(take("kind")) };
        Ok(ObjectList { types, metadata, items })
    })
}

fn encode<K: Serialize>(object: &K) -> Result<Vec<u8>> {
    serde_json::to_vec(object).map_err(Error::SerdeError)
}

pub(crate) fn decode<K: DeserializeOwned>(value: Value) -> Result<K> {
    serde_json::from_value(value).map_err(Error::SerdeError)
}
