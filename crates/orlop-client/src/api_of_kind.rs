//! Requests for the objects of a kind.

use std::{fmt::Debug, marker::PhantomData};

use futures_util::{future::BoxFuture, stream::BoxStream};
use http::Request;
use kube_core::{
    ListMeta, NamespaceResourceScope, ObjectList, Resource, TypeMeta, WatchEvent,
    params::{DeleteParams, GetParams, ListParams, Patch, PatchParams, PostParams, WatchParams},
    request,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use crate::{
    client::{Client, decode},
    error::{Error, Result},
};

/// The objects of a kind, in one namespace or in all.
pub struct Api<K> {
    client: Client,
    request: request::Request,
    kind: PhantomData<fn() -> K>,
}

impl<K> Clone for Api<K> {
    fn clone(&self) -> Self {
        let request = request::Request::new(self.request.url_path.clone());
        Self { client: self.client.clone(), request, kind: PhantomData }
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
        Self::all_with(client, &())
    }

    /// Returns the objects of a namespace.
    pub fn namespaced(client: Client, namespace: &str) -> Self
    where
        K: Resource<Scope = NamespaceResourceScope>,
    {
        Self::namespaced_with(client, namespace, &())
    }
}

impl<K: Resource> Api<K> {
    /// Returns the objects of a kind that is known at run time, of all namespaces or of a cluster-scoped kind.
    pub fn all_with(client: Client, kind: &K::DynamicType) -> Self {
        Self { client, request: request::Request::new(K::url_path(kind, None)), kind: PhantomData }
    }

    /// Returns the objects of a kind that is known at run time, in a namespace.
    pub fn namespaced_with(client: Client, namespace: &str, kind: &K::DynamicType) -> Self {
        Self { client, request: request::Request::new(K::url_path(kind, Some(namespace))), kind: PhantomData }
    }

    /// Returns the same objects without their types.
    pub(crate) fn untyped(&self) -> Untyped {
        Untyped {
            client: self.client.clone(),
            request: request::Request::new(self.request.url_path.clone()),
            is_metadata: K::metadata_api(),
        }
    }
}

/// Objects of a kind as JSON values, or only their metadata.
pub(crate) struct Untyped {
    client: Client,
    request: request::Request,
    is_metadata: bool,
}

impl Untyped {
    pub(crate) fn list(&self, options: &ListParams) -> BoxFuture<'static, Result<ObjectList<Value>>> {
        let built = match self.is_metadata {
            true => self.request.list_metadata(options),
            false => self.request.list(options),
        };
        send_list(&self.client, built)
    }

    pub(crate) fn watch(
        &self,
        options: &WatchParams,
        resource_version: &str,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<WatchEvent<Value>>>>> {
        let built = self.watch_request(options, resource_version);
        let client = self.client.clone();
        Box::pin(async move { client.untyped_events(built?).await })
    }

    fn watch_request(&self, options: &WatchParams, resource_version: &str) -> Result<Request<Vec<u8>>> {
        let built = match self.is_metadata {
            true => self.request.watch_metadata(options, resource_version),
            false => self.request.watch(options, resource_version),
        };
        let mut request = built.map_err(Error::BuildRequest)?;
        request.extensions_mut().insert("watch");
        Ok(request)
    }
}

impl<K: Resource + Clone + DeserializeOwned> Api<K> {
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
        let list = self.untyped().list(options).await?;
        let items = list.items.into_iter().map(decode).collect::<Result<_>>()?;
        Ok(ObjectList { types: list.types, metadata: list.metadata, items })
    }

    /// Watches objects from a resourceVersion on, as long as the server keeps the watch open.
    pub async fn watch(
        &self,
        options: &WatchParams,
        resource_version: &str,
    ) -> Result<BoxStream<'static, Result<WatchEvent<K>>>>
    where
        K: Send + 'static,
    {
        let request = self.untyped().watch_request(options, resource_version)?;
        self.client.request_events(request).await
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

    /// Reads a subresource of an object.
    pub async fn get_subresource<T: DeserializeOwned>(&self, subresource: &str, name: &str) -> Result<T> {
        let built = self.request.get_subresource(subresource, name);
        decode(send(&self.client, built, "get_subresource").await?)
    }

    /// Patches an object through a subresource.
    pub async fn patch_subresource<P: Serialize + Debug, T: DeserializeOwned>(
        &self,
        subresource: &str,
        name: &str,
        options: &PatchParams,
        patch: &Patch<P>,
    ) -> Result<T> {
        let built = self.request.patch_subresource(subresource, name, options, patch);
        decode(send(&self.client, built, "patch_subresource").await?)
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

    /// Deletes the objects that the options of a list select.
    pub async fn delete_collection(&self, options: &DeleteParams, selected: &ListParams) -> Result<()> {
        let built = self.request.delete_collection(options, selected);
        send(&self.client, built, "delete_collection").await.map(drop)
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
