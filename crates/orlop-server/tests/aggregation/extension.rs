//! An extension API server on a loopback port, which answers as a test wants.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use orlop_server::{
    auth::pki::{Authority, server_tls},
    chain::Chain,
};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::{call, get};

pub(crate) const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
/// Time in which something happens that does not happen at once.
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) type Answer = Response<BoxBody<Bytes, std::io::Error>>;
type Handler =
    Arc<dyn Fn(Request<Incoming>) -> futures_util::future::BoxFuture<'static, Answer> + Send + Sync>;

/// Returns an answer with a whole body.
pub(crate) fn answer(code: u16, media_type: &str, body: impl Into<Bytes>) -> Answer {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
    Response::builder().status(code).header("content-type", media_type).body(body).unwrap()
}

pub(crate) fn json_answer(value: &Value) -> Answer {
    answer(200, "application/json", value.to_string())
}

/// A server. Discovery of `home.example.com/v1` works; everything else is up to the handler.
pub(crate) struct Extension {
    pub(crate) port: u16,
    pub(crate) ca_bundle: String,
    handler: Arc<Mutex<Handler>>,
}

impl Extension {
    pub(crate) async fn start() -> Self {
        let authority = Authority::generate().unwrap();
        let names = ["lamps.default.svc".to_owned()];
        let credential = authority.server(&names, &[]).unwrap();
        let acceptor = TlsAcceptor::from(server_tls(&credential, authority.certificate()).unwrap().config());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let not_found: Handler = Arc::new(|_| Box::pin(async { answer(404, "text/plain", "") }));
        let extension = Self {
            port: listener.local_addr().unwrap().port(),
            ca_bundle: STANDARD.encode(authority.certificate()),
            handler: Arc::new(Mutex::new(not_found)),
        };
        let handler = extension.handler.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let (acceptor, handler) = (acceptor.clone(), handler.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(socket).await else { return };
                    let service = service_fn(move |request: Request<Incoming>| {
                        let handler = handler.lock().unwrap().clone();
                        async move {
                            if request.uri().path() == "/apis/home.example.com/v1" {
                                return Ok::<_, Infallible>(json_answer(&resources()));
                            }
                            Ok(handler(request).await)
                        }
                    });
                    let _ = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new())
                        .serve_connection_with_upgrades(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        extension
    }

    /// Sets what it answers.
    pub(crate) fn answers<F>(&self, handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        *self.handler.lock().unwrap() = Arc::new(move |request| Box::pin(handler(request)));
    }

    /// Registers it as the server of `home.example.com/v1`.
    pub(crate) async fn register(&self, chain: &Chain) {
        register(chain, self.port, &json!(self.ca_bundle)).await;
    }

    /// Registers it, and waits until it is available.
    pub(crate) async fn available(&self, chain: &Chain) {
        self.register(chain).await;
        condition(chain, |found| found["status"] == "True").await;
        // The condition is in the store a moment before it is in force.
        let ask = || async { get(chain, "/apis/home.example.com/v1").await.1 };
        eventually(ask, |found| found["kind"] == "APIResourceList").await;
    }
}

/// Registers a port of this machine as the server of `home.example.com/v1`.
pub(crate) async fn register(chain: &Chain, port: u16, ca_bundle: &Value) {
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "lamps"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    let (code, told) = call(chain, "POST", "/api/v1/namespaces/default/services", Some(&service)).await;
    assert_eq!(code, 201, "{told}");
    let mut spec = json!({"group": "home.example.com", "version": "v1", "groupPriorityMinimum": 2000,
        "versionPriority": 10, "service": {"namespace": "default", "name": "lamps", "port": port}});
    match ca_bundle.is_null() {
        true => spec["insecureSkipTLSVerify"] = true.into(),
        false => spec["caBundle"] = ca_bundle.clone(),
    }
    let object = json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1.home.example.com"}, "spec": spec});
    let (code, told) = call(chain, "POST", SERVICES, Some(&object)).await;
    assert_eq!(code, 201, "{told}");
}

/// Waits until something is as wanted. Returns it.
pub(crate) async fn eventually<F>(ask: impl Fn() -> F, wanted: impl Fn(&Value) -> bool) -> Value
where
    F: Future<Output = Value>,
{
    let waiting = async {
        loop {
            let found = ask().await;
            if wanted(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(found) => found,
        Err(_) => panic!("still {}", ask().await),
    }
}

/// Waits until the Available condition of `home.example.com/v1` is as wanted. Returns it.
pub(crate) async fn condition(chain: &Chain, wanted: impl Fn(&Value) -> bool) -> Value {
    let ask = || async {
        let (_, service) = get(chain, &format!("{SERVICES}/v1.home.example.com")).await;
        service["status"]["conditions"][0].clone()
    };
    eventually(ask, wanted).await
}

fn resources() -> Value {
    json!({"kind": "APIResourceList", "groupVersion": "home.example.com/v1", "resources": [
        {"name": "lamps", "singularName": "lamp", "namespaced": true, "kind": "Lamp",
            "verbs": ["get", "list", "watch", "create", "delete"], "shortNames": ["lp"]},
        {"name": "lamps/status", "singularName": "", "namespaced": true, "kind": "Lamp", "verbs": ["get"]},
    ]})
}
