//! The untyped client.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, future::BoxFuture, stream::BoxStream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use kube_core::{Status, WatchEvent};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower::{Service, ServiceExt};

use crate::{
    body::{Body, Lines},
    error::{BoxError, Error, Result},
    object_json,
};

/// An answer that is under way.
pub(crate) type Answer = BoxFuture<'static, std::result::Result<Response<Body>, BoxError>>;

/// Bytes of an error that is not a Status which are passed on.
const ERROR_TEXT_MAX: usize = 64 << 10;

/// A client of an API server.
#[derive(Clone)]
pub struct Client {
    call: Arc<dyn Fn(Request<Bytes>) -> Answer + Send + Sync>,
    default_namespace: Arc<str>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// Returns a client of a service, such as a server in this process.
    pub fn new<S, B>(service: S, default_namespace: &str) -> Self
    where
        S: Service<Request<Full<Bytes>>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Self::of(
            move |request| {
                let answered = service.clone().oneshot(request.map(Full::new));
                Box::pin(async move {
                    let response = answered.await.map_err(Into::into)?;
                    Ok(response.map(|body| UnsyncBoxBody::new(body.map_err(Into::into))))
                })
            },
            default_namespace,
        )
    }

    pub(crate) fn of(
        call: impl Fn(Request<Bytes>) -> Answer + Send + Sync + 'static,
        default_namespace: &str,
    ) -> Self {
        Self { call: Arc::new(call), default_namespace: default_namespace.into() }
    }

    /// Returns the namespace of the kubeconfig's context, or of the pod.
    pub fn default_namespace(&self) -> &str {
        &self.default_namespace
    }

    /// Sends a request. An answer that is an error is one.
    pub fn send(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, Result<Response<Body>>> {
        let answer = (self.call)(request.map(Bytes::from));
        Box::pin(async move {
            let response = answer.await.map_err(Error::Service)?;
            match response.status() {
                status if status.is_client_error() || status.is_server_error() => {
                    Err(refusal(response).await)
                }
                _ => Ok(response),
            }
        })
    }

    /// Sends a request and decodes the answer.
    pub async fn request<T: DeserializeOwned>(&self, request: Request<Vec<u8>>) -> Result<T> {
        serde_json::from_slice(&self.request_bytes(request).await?).map_err(Error::SerdeError)
    }

    /// Sends a request and decodes the object that answers it, without its managed fields.
    pub async fn request_object(&self, request: Request<Vec<u8>>) -> Result<Value> {
        object_json::decode_object(&self.request_bytes(request).await?).map_err(Error::SerdeError)
    }

    /// Sends a request and decodes the list that answers it, without the managed fields of its objects.
    pub async fn request_list(&self, request: Request<Vec<u8>>) -> Result<Value> {
        object_json::decode_list(&self.request_bytes(request).await?).map_err(Error::SerdeError)
    }

    fn request_bytes(&self, request: Request<Vec<u8>>) -> BoxFuture<'static, Result<Bytes>> {
        let sent = self.send(request);
        Box::pin(async move { read(sent.await?.into_body()).await })
    }

    /// Sends a request and returns the events of the answer, as they arrive.
    pub async fn request_events<T: DeserializeOwned + Send + 'static>(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<BoxStream<'static, Result<WatchEvent<T>>>> {
        // Decoded at once: the garbage collector sees every change.
        let lines = Lines::new(self.send(request).await?.into_body()).into_stream();
        Ok(lines.map(|line| event(&line?)).boxed())
    }

    /// Sends a request and returns the events of the answer, with objects as they are but for their managed fields.
    pub(crate) fn untyped_events(
        &self,
        request: Request<Vec<u8>>,
    ) -> BoxFuture<'static, Result<BoxStream<'static, Result<WatchEvent<Value>>>>> {
        let sent = self.send(request);
        Box::pin(async move {
            let lines = Lines::new(sent.await?.into_body()).into_stream();
            Ok(lines.map(|line| untyped_event(&line?)).boxed())
        })
    }
}

/// Reads a whole body.
async fn read(body: Body) -> Result<Bytes> {
    Ok(body.collect().await.map_err(Error::ReadBody)?.to_bytes())
}

/// Returns the error of an answer. One that is not a Status, of a proxy for example, becomes one.
async fn refusal(response: Response<Body>) -> Error {
    let code = response.status().as_u16();
    let body = match read(response.into_body()).await {
        Ok(body) => body,
        Err(error) => return error,
    };
    let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body[..body.len().min(ERROR_TEXT_MAX)]);
        Status::failure(text.trim(), "Failed to parse error data").with_code(code)
    });
    Error::Api(status.boxed())
}

fn untyped_event(line: &[u8]) -> Result<WatchEvent<Value>> {
    let mut event = object_json::decode_event(line).map_err(Error::SerdeError)?;
    let object = event.get_mut("object").map(Value::take).unwrap_or_default();
    match event.get("type").and_then(Value::as_str) {
        Some("ADDED") => Ok(WatchEvent::Added(object)),
        Some("MODIFIED") => Ok(WatchEvent::Modified(object)),
        Some("DELETED") => Ok(WatchEvent::Deleted(object)),
        // A bookmark, an error, or a Status without an event around it.
        _ => self::event(line),
    }
}

fn event<T: DeserializeOwned>(line: &[u8]) -> Result<WatchEvent<T>> {
    serde_json::from_slice(line).map_err(|error| match serde_json::from_slice::<Status>(line) {
        Ok(status) => Error::Api(status.boxed()),
        Err(_) => Error::SerdeError(error),
    })
}

pub(crate) fn decode<K: DeserializeOwned>(value: Value) -> Result<K> {
    serde_json::from_value(value).map_err(Error::SerdeError)
}
