//! A kind's gRPC service: finds the verb, asks whether the caller may, runs it, and writes the audit line.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use prost::Message;
use tonic::{Code, Status, body::Body, server::Grpc};
use tower::{Service, service_fn};

use crate::{
    codec::Fitting,
    error::Error,
    resource::Resource,
    server::{Caller, Policy},
    verbs::Verb,
    wire,
};

/// Bytes of a message that is received.
pub(crate) const RECEIVE_BYTES_MAX: usize = 2 << 20;
/// Bytes of a message that is sent.
pub(crate) const SEND_BYTES_MAX: usize = 16 << 20;

/// Serves one kind.
#[derive(Clone, Debug)]
pub(crate) struct DeviceService {
    resource: Arc<Resource>,
    policy: Arc<Policy>,
}

impl DeviceService {
    pub(crate) fn new(resource: Arc<Resource>, policy: Arc<Policy>) -> Self {
        Self { resource, policy }
    }

    async fn handle(self, request: Request<Body>) -> Response<Body> {
        let method = request.uri().path().rsplit('/').next().unwrap_or_default();
        let Some(verb) = Verb::of(method, self.resource.kind.noun) else {
            return Status::unimplemented("no such method").into_http();
        };
        let caller = Caller::of(&request);
        if verb.writes()
            && let Err(refused) = self.policy.allow_write(&caller, request.headers())
        {
            tracing::warn!(target: "audit", %caller, service = self.resource.kind.service, ?verb, reason = %refused, "refused");
            return Status::from(refused).into_http();
        }
        let resource = self.resource;
        match verb {
            Verb::Get => unary(request, move |r| async move { resource.get(r).await }).await,
            Verb::List => {
                unary(request, move |r| async move { resource.list(r, SEND_BYTES_MAX).await }).await
            }
            Verb::Watch => watch(request, resource).await,
            Verb::Create => {
                let call = move |r: wire::WriteRequest| async move {
                    let name = name_of(&r);
                    audited(&caller, verb, &resource, name, resource.create(r)).await
                };
                unary(request, call).await
            }
            Verb::Update | Verb::UpdateStatus => {
                let call = move |r: wire::WriteRequest| async move {
                    let name = name_of(&r);
                    if verb == Verb::Update {
                        audited(&caller, verb, &resource, name, resource.update(r)).await
                    } else {
                        audited(&caller, verb, &resource, name, resource.update_status(r)).await
                    }
                };
                unary(request, call).await
            }
            Verb::Patch => {
                let call = move |r: wire::PatchRequest| async move {
                    audited(&caller, verb, &resource, r.name.clone(), resource.patch(r)).await
                };
                unary(request, call).await
            }
            Verb::Delete => {
                let call = move |r: wire::DeleteRequest| async move {
                    audited(&caller, verb, &resource, r.name.clone(), resource.delete(r)).await
                };
                unary(request, call).await
            }
        }
    }
}

impl Service<Request<Body>> for DeviceService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.clone();
        Box::pin(async move { Ok(service.handle(request).await) })
    }
}

/// Who wrote what, and what came of it.
async fn audited<T>(
    caller: &Caller,
    verb: Verb,
    resource: &Resource,
    name: String,
    call: impl Future<Output = Result<T, Error>>,
) -> Result<T, Error> {
    let result = call.await;
    let service = resource.kind.service;
    match &result {
        Ok(_) => tracing::info!(target: "audit", %caller, service, ?verb, name, "done"),
        Err(error) => tracing::info!(target: "audit", %caller, service, ?verb, name, %error, "failed"),
    }
    result
}

fn name_of(request: &wire::WriteRequest) -> String {
    let meta = request.object.as_ref().and_then(|object| object.object_meta.as_ref());
    meta.map(|meta| meta.name().to_owned()).unwrap_or_default()
}

fn grpc<Req, Res>() -> Grpc<Fitting<Res, Req>>
where
    Req: Message + Default + 'static,
    Res: Message + 'static,
{
    Grpc::new(Fitting::default())
        .max_decoding_message_size(RECEIVE_BYTES_MAX)
        .max_encoding_message_size(SEND_BYTES_MAX)
}

async fn unary<Req, Res, F, Fut>(request: Request<Body>, call: F) -> Response<Body>
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
    // A message over the limit is told as OUT_OF_RANGE by the framework, but here that code asks clients to
    // list again.
    if !called.load(Ordering::Relaxed)
        && Status::from_header_map(response.headers()).is_some_and(|s| s.code() == Code::OutOfRange)
    {
        response.headers_mut().insert(Status::GRPC_STATUS, (Code::ResourceExhausted as i32).into());
    }
    response
}

async fn watch(request: Request<Body>, resource: Arc<Resource>) -> Response<Body> {
    let service = service_fn(move |request: tonic::Request<wire::ListRequest>| {
        let resource = resource.clone();
        async move {
            let watching = resource.watch(request.into_inner()).await?;
            Ok::<_, Status>(tonic::Response::new(watching.stream()))
        }
    });
    grpc::<wire::ListRequest, wire::WatchResponse>().server_streaming(service, request).await
}
