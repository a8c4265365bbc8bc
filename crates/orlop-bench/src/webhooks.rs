//! Admission: the cost of a webhook on the same machine, for each write.
//!
//! Writes are dry runs: they do all that a write does but the transaction, whose sync would hide what is measured.

use std::{convert::Infallible, path::Path, time::Duration};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::{
    api::{CONFIG_MAPS, Server},
    bare,
    client::Client,
    load,
    report::{Better, Report},
};

const GROUP: &str = "/apis/admissionregistration.k8s.io/v1";

pub(crate) async fn run(
    report: &mut Report,
    program: &Path,
    folder: &Path,
    time: Duration,
) -> anyhow::Result<()> {
    let plain = Server::start(program, &folder.join("plain"))?;
    let without = Client::connect(&plain.kubeconfig, 1).await?;
    let client_config = webhook().await?;
    for (kind, resource) in [
        ("ValidatingWebhookConfiguration", "validatingwebhookconfigurations"),
        ("MutatingWebhookConfiguration", "mutatingwebhookconfigurations"),
    ] {
        let server = Server::start(program, &folder.join(kind))?;
        let with = Client::connect(&server.kubeconfig, 1).await?;
        let (code, body) =
            with.post(&format!("{GROUP}/{resource}"), &configuration(kind, &client_config)).await?;
        anyhow::ensure!(code == 201, "{code}: {}", String::from_utf8_lossy(&body));
        let (ours, peer) = load::in_turns(1, time, creates(with), creates(without.clone())).await;
        let (with, without) = (1e6 / ours.per_second, 1e6 / peer.per_second);
        let short = kind.trim_end_matches("WebhookConfiguration").to_lowercase();
        let name = format!("admission: create with a {short} webhook");
        report.beside(name, "\u{b5}s", Better::Lower, with, "without", without);
        report.alone(format!("admission: a {short} webhook costs"), "\u{b5}s a write", with - without);
    }
    Ok(())
}

/// Creates ConfigMaps, one after the other.
fn creates(client: Client) -> impl Fn(usize, usize) -> CreateFuture + Clone + Send + 'static {
    move |worker, n| {
        let client = client.clone();
        Box::pin(async move {
            let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
                "metadata": {"name": format!("w{worker}-{n}")}, "data": {"a": "b"}});
            let created = client.post(&format!("{CONFIG_MAPS}?dryRun=All"), &map).await;
            created.is_ok_and(|(code, _)| code == 201)
        })
    }
}

type CreateFuture = std::pin::Pin<Box<dyn Future<Output = bool> + Send>>;

fn configuration(kind: &str, client_config: &Value) -> Value {
    let rule = json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]});
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "bench"},
        "webhooks": [{
            "name": "bench.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
            "clientConfig": client_config, "rules": [rule],
        }],
    })
}

/// Starts a webhook that allows everything, over TLS and HTTP/1.1. Returns its clientConfig.
async fn webhook() -> anyhow::Result<Value> {
    let (acceptor, made) = bare::self_signed(b"http/1.1")?;
    let listener = TcpListener::bind((bare::HOST, 0)).await?;
    let url = format!("https://{}/admit", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let _ = socket.set_nodelay(true);
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(socket).await else { return };
                // A server that goes away is no news.
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service_fn(allow)).await;
            });
        }
    });
    Ok(json!({"url": url, "caBundle": STANDARD.encode(made.cert.pem())}))
}

async fn allow(request: http::Request<Incoming>) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let body =
        request.into_body().collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let review: Value = serde_json::from_slice(&body).unwrap_or_default();
    let response = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "response": {"uid": review["request"]["uid"], "allowed": true},
    });
    Ok(http::Response::new(Full::new(response.to_string().into())))
}
