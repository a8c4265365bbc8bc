//! The gRPC service of a kind: finds the verb, authorizes the caller, runs the verb, writes the audit log.

use std::{
    convert::Infallible,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::future::{BoxFuture, ready};
use http::{Request, Response};
use prost::Message;
use tonic::{Code, Status, body::Body, server::Grpc};
use tower::{Service, service_fn};

use crate::{
    authorization::{Caller, WritePolicy},
    codec::SizedCodec,
    error::Error,
    list_body::ListBody,
    resource::Resource,
    verbs::Verb,
    wire,
};

/// Largest message received.
pub(crate) const RECEIVE_BYTES_MAX: usize = 2 << 20;
/// Largest message sent.
pub(crate) const SEND_BYTES_MAX: usize = 16 << 20;

/// A response. A failed call has its status in the headers.
type CallResult = Result<Response<Body>, Infallible>;

/// Serves one kind.
#[derive(Clone, Debug)]
pub(crate) struct DeviceService {
    resource: Arc<Resource>,
    policy: Arc<WritePolicy>,
}

impl DeviceService {
    pub(crate) fn new(resource: Arc<Resource>, policy: Arc<WritePolicy>) -> Self {
        Self { resource, policy }
    }

    /// Dispatches a call. Each verb's future is boxed by itself: one for all verbs would be as large as the largest.
    fn handle(self, request: Request<Body>) -> BoxFuture<'static, CallResult> {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let Some(verb) = Verb::of(method, self.resource.kind.noun) else {
            return Box::pin(ready(Ok(Status::unimplemented("unknown method").into_http())));
        };
        let caller = Caller::of(&request);
        if verb.is_write()
            && let Err(denied) = self.policy.authorize_write(&caller, request.headers())
        {
            tracing::warn!(target: "audit", %caller, service = self.resource.kind.service, ?verb, reason = %denied, "denied");
            return Box::pin(ready(Ok(Status::from(denied).into_http())));
        }
        let resource = self.resource;
        let audit = Audit { caller, verb, service: resource.kind.service };
        match verb {
            Verb::Get => Box::pin(unary(request, move |r| async move { resource.get(r).await })),
            Verb::List => Box::pin(list(request, resource)),
            Verb::Watch => Box::pin(watch(request, resource)),
            Verb::Create => Box::pin(unary(request, move |r: wire::WriteRequest| async move {
                let name = name_of(&r);
                audit.record(&name, resource.create(r).await)
            })),
            Verb::Update => Box::pin(unary(request, move |r: wire::WriteRequest| async move {
                let name = name_of(&r);
                audit.record(&name, resource.update(r).await)
            })),
            Verb::UpdateStatus => Box::pin(unary(request, move |r: wire::WriteRequest| async move {
                let name = name_of(&r);
                audit.record(&name, resource.update_status(r).await)
            })),
            Verb::Patch => Box::pin(unary(request, move |r: wire::PatchRequest| async move {
                let name = r.name.clone();
                audit.record(&name, resource.patch(r).await)
            })),
            Verb::Delete => Box::pin(unary(request, move |r: wire::DeleteRequest| async move {
                let name = r.name.clone();
                audit.record(&name, resource.delete(r).await)
            })),
        }
    }
}

impl Service<Request<Body>> for DeviceService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, CallResult>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        self.clone().handle(request)
    }
}

/// The audit log entry of a write.
#[derive(Clone)]
struct Audit {
    caller: Caller,
    verb: Verb,
    service: &'static str,
}

impl Audit {
    /// Logs the outcome of a write.
    fn record<T>(&self, name: &str, result: Result<T, Error>) -> Result<T, Error> {
        let Self { caller, verb, service } = self;
        match &result {
            Ok(_) => tracing::info!(target: "audit", %caller, service, ?verb, name, "succeeded"),
            Err(error) => tracing::info!(target: "audit", %caller, service, ?verb, name, %error, "failed"),
        }
        result
    }
}

fn name_of(request: &wire::WriteRequest) -> String {
    let meta = request.object.as_ref().and_then(|object| object.object_meta.as_ref());
    meta.map(|meta| meta.name().to_owned()).unwrap_or_default()
}

fn grpc<Req, Res>() -> Grpc<SizedCodec<Res, Req>>
where
    Req: Message + Default + 'static,
    Res: Message + 'static,
{
    Grpc::new(SizedCodec::default())
        .max_decoding_message_size(RECEIVE_BYTES_MAX)
        .max_encoding_message_size(SEND_BYTES_MAX)
}

async fn unary<Req, Res, F, Fut>(request: Request<Body>, call: F) -> CallResult
where
    Req: Message + Default + 'static,
    Res: Message + 'static,
    F: FnOnce(Req) -> Fut + Send + Clone + 'static,
    Fut: Future<Output = Result<Res, Error>> + Send,
{
    let called = Arc::new(AtomicBool::new(false));
    let noted = called.clone();
    let service = service_fn(move |request: tonic::Request<Req>| {
        let (call, noted) = (call.clone(), noted.clone());
        async move {
            noted.store(true, Ordering::Relaxed);
            Ok::<_, Status>(tonic::Response::new(call(request.into_inner()).await?))
        }
    });
    let mut response = grpc().unary(service, request).await;
    // tonic reports a message over the limit as OUT_OF_RANGE, but in this API that code makes clients list again.
    if !called.load(Ordering::Relaxed)
        && Status::from_header_map(response.headers()).is_some_and(|s| s.code() == Code::OutOfRange)
    {
        response.headers_mut().insert(Status::GRPC_STATUS, (Code::ResourceExhausted as i32).into());
    }
    Ok(response)
}

/// Lists objects. tonic decodes the request and writes the headers; a successful body is a [`ListBody`].
async fn list(request: Request<Body>, resource: Arc<Resource>) -> CallResult {
    let made = Arc::new(Mutex::new(None));
    let place = made.clone();
    let mut response = unary(request, move |request| async move {
        let list = resource.list(request, SEND_BYTES_MAX).await?;
        *place.lock().unwrap_or_else(PoisonError::into_inner) = Some(list);
        Ok(())
    })
    .await?;
    if let Some(list) = made.lock().unwrap_or_else(PoisonError::into_inner).take() {
        *response.body_mut() = Body::new(ListBody::from(list));
    }
    Ok(response)
}

async fn watch(request: Request<Body>, resource: Arc<Resource>) -> CallResult {
    let service = service_fn(move |request: tonic::Request<wire::ListRequest>| {
        let resource = resource.clone();
        async move {
            let watch = resource.watch(request.into_inner()).await?;
            Ok::<_, Status>(tonic::Response::new(watch.stream()))
        }
    });
    Ok(grpc::<wire::ListRequest, wire::WatchResponse>().server_streaming(service, request).await)
}
