//! A webhook over TLS on a loopback port.

#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::panic,
    reason = "each test program uses its part, and fails by panicking"
)]

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::BodyExt;
use hyper::{
    body::{Body, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use orlop_server::auth::pki::{self, Authority};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// Answer to a review.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// 200 with this JSON.
    Json(Value),
    /// This code, media type and body.
    Raw(u16, &'static str, Vec<u8>),
    /// A redirect to this address.
    Redirect(String),
    /// No answer, ever.
    Hang,
    /// The connection is closed without an answer.
    Close,
    /// The connection is closed in the middle of the body.
    CutOff,
}

type Answer = Arc<dyn Fn(&Value) -> Reply + Send + Sync>;

/// A webhook.
pub(crate) struct Hook {
    pub(crate) port: u16,
    /// Base64 of its CA.
    pub(crate) ca_bundle: String,
    calls: Arc<AtomicUsize>,
    connections: Arc<AtomicUsize>,
    reviews: Arc<Mutex<Vec<Value>>>,
    paths: Arc<Mutex<Vec<String>>>,
    /// Trace contexts of requests.
    traces: Arc<Mutex<Vec<String>>>,
    answer: Arc<Mutex<Answer>>,
    _folder: tempfile::TempDir,
}

impl Hook {
    /// Starts a webhook whose certificate is for localhost, 127.0.0.1 and these names.
    pub(crate) async fn start(
        names: &[&str],
        answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        Self::start_at("127.0.0.1", names, answer).await
    }

    /// Starts a webhook at another loopback address.
    pub(crate) async fn start_at(
        address: &str,
        names: &[&str],
        answer: impl Fn(&Value) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let authority = Authority::load_or_generate(folder.path()).unwrap();
        let names: Vec<String> = ["localhost"].iter().chain(names).map(|name| (*name).to_owned()).collect();
        let credential = authority.server(&names, &[[127, 0, 0, 1].into()]).unwrap();
        let acceptor =
            TlsAcceptor::from(pki::server_tls(&credential, authority.certificate()).unwrap().config());
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let hook = Self {
            port: listener.local_addr().unwrap().port(),
            ca_bundle: STANDARD.encode(authority.certificate()),
            calls: Arc::default(),
            connections: Arc::default(),
            reviews: Arc::default(),
            paths: Arc::default(),
            traces: Arc::default(),
            answer: Arc::new(Mutex::new(Arc::new(answer))),
            _folder: folder,
        };
        let (calls, connections, answer) =
            (hook.calls.clone(), hook.connections.clone(), hook.answer.clone());
        let (reviews, paths, traces) = (hook.reviews.clone(), hook.paths.clone(), hook.traces.clone());
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let Ok(stream) = acceptor.accept(socket).await else { continue };
                connections.fetch_add(1, Ordering::SeqCst);
                let (calls, answer, reviews, paths, traces) =
                    (calls.clone(), answer.clone(), reviews.clone(), paths.clone(), traces.clone());
                tokio::spawn(async move {
                    let service = service_fn(|request: Request<Incoming>| {
                        calls.fetch_add(1, Ordering::SeqCst);
                        paths.lock().unwrap().push(request.uri().to_string());
                        let trace = request.headers().get("traceparent");
                        traces.lock().unwrap().extend(trace.map(|trace| trace.to_str().unwrap().to_owned()));
                        let (answer, reviews) = (answer.lock().unwrap().clone(), reviews.clone());
                        async move {
                            let body = request.into_body().collect().await.unwrap().to_bytes();
                            let review: Value = serde_json::from_slice(&body).unwrap();
                            let reply = answer(&review);
                            reviews.lock().unwrap().push(review);
                            respond(reply).await
                        }
                    });
                    let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        hook
    }

    /// Returns the number of requests so far.
    pub(crate) fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    /// Returns the number of connections so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Returns the reviews since the last call of this.
    pub(crate) fn take_reviews(&self) -> Vec<Value> {
        std::mem::take(&mut self.reviews.lock().unwrap())
    }

    /// Returns the trace contexts of requests since the last call of this.
    pub(crate) fn take_traces(&self) -> Vec<String> {
        std::mem::take(&mut self.traces.lock().unwrap())
    }

    /// Returns the paths of requests since the last call of this.
    pub(crate) fn take_paths(&self) -> Vec<String> {
        std::mem::take(&mut self.paths.lock().unwrap())
    }

    /// Changes the answers.
    pub(crate) fn answers(&self, answer: impl Fn(&Value) -> Reply + Send + Sync + 'static) {
        *self.answer.lock().unwrap() = Arc::new(answer);
    }
}

async fn respond(reply: Reply) -> io::Result<Response<ReplyBody>> {
    let whole = |bytes: Vec<u8>| ReplyBody { bytes: Some(bytes.into()), fails: false, flushes: false };
    Ok(match reply {
        Reply::Json(value) => {
            let response = Response::builder().header(header::CONTENT_TYPE, "application/json");
            response.body(whole(value.to_string().into_bytes())).unwrap()
        }
        Reply::Raw(code, media_type, body) => {
            let response = Response::builder().status(code).header(header::CONTENT_TYPE, media_type);
            response.body(whole(body)).unwrap()
        }
        Reply::Redirect(to) => {
            let response = Response::builder().status(307).header(header::LOCATION, to);
            response.body(whole(Vec::new())).unwrap()
        }
        Reply::Hang => std::future::pending().await,
        Reply::Close => return Err(io::Error::other("closed")),
        Reply::CutOff => {
            let response = Response::builder().header(header::CONTENT_LENGTH, 1000);
            let begun = Some(Bytes::from_static(b"{\"kind\""));
            response.body(ReplyBody { bytes: begun, fails: true, flushes: true }).unwrap()
        }
    })
}

/// A body that may fail after its bytes.
struct ReplyBody {
    bytes: Option<Bytes>,
    fails: bool,
    /// The bytes are sent before it fails.
    flushes: bool,
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.bytes.is_none() && std::mem::take(&mut self.flushes) {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(match self.bytes.take() {
            Some(bytes) => Some(Ok(Frame::data(bytes))),
            None if self.fails => Some(Err(io::Error::other("cut off"))),
            None => None,
        })
    }
}
