//! The webhook backend against a webhook over TLS that is slow, fails, or cuts connections.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    collections::VecDeque,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, Uri, header::HeaderValue};
use http_body_util::{BodyExt, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use orlop_api::{query::Query, time::Time};
use orlop_audit::{
    Auditor, Event, Level, Metrics, Policy, Stage,
    backend::{
        Backend, BatchOptions, Delivery, Mode, Throttle, Ticket, TruncateOptions, WebhookBackend,
        WebhookOptions,
    },
};
use orlop_auth::{
    pki::{self, Authority},
    request::Attributes,
};
use serde_json::Value;
use tokio::{net::TcpListener, sync::mpsc};
use tokio_rustls::TlsAcceptor;

/// Behaviour of the webhook for one request.
#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Ok,
    Code(u16),
    /// Answers after a while.
    Slow(Duration),
    /// Closes the connection.
    Cut,
}

/// A webhook on a loopback port.
struct Hook {
    kubeconfig: PathBuf,
    /// Behaviour for the next requests; then they succeed.
    answers: Arc<Mutex<VecDeque<Answer>>>,
    /// Bodies that it accepted.
    received: mpsc::UnboundedReceiver<Value>,
    _folder: tempfile::TempDir,
}

async fn hook(answers: &[Answer]) -> Hook {
    let folder = tempfile::tempdir().unwrap();
    let authority = Authority::load_or_generate(folder.path()).unwrap();
    let credential = authority.server(&["localhost".to_owned()], &[[127, 0, 0, 1].into()]).unwrap();
    let acceptor = TlsAcceptor::from(pki::server_tls(&credential, authority.certificate()).unwrap().config());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ca = folder.path().join("webhook-ca.crt");
    std::fs::write(&ca, authority.certificate()).unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n\
         contexts: [{{name: a, context: {{cluster: a, user: ''}}}}]\n\
         clusters: [{{name: a, cluster: {{server: 'https://localhost:{}/audit', certificate-authority: '{}'}}}}]\n",
        listener.local_addr().unwrap().port(),
        ca.display()
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let answers = Arc::new(Mutex::new(VecDeque::from(answers.to_vec())));
    let (accepted, received) = mpsc::unbounded_channel();
    let planned = answers.clone();
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let Ok(stream) = acceptor.accept(socket).await else { continue };
            let (planned, accepted) = (planned.clone(), accepted.clone());
            tokio::spawn(async move {
                let service = service_fn(|request: http::Request<Incoming>| {
                    let answer = planned.lock().unwrap().pop_front().unwrap_or(Answer::Ok);
                    let accepted = accepted.clone();
                    async move {
                        assert_eq!((request.uri().path(), request.method()), ("/audit", &Method::POST));
                        let body =
                            request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
                        let mut response = Response::new(Full::new(Bytes::new()));
                        match answer {
                            Answer::Cut => return Err(std::io::Error::other("cut")),
                            Answer::Code(code) => {
                                *response.status_mut() = code.try_into().unwrap();
                                return Ok(response);
                            }
                            Answer::Slow(time) => tokio::time::sleep(time).await,
                            Answer::Ok => {}
                        }
                        accepted.send(serde_json::from_slice(&body).unwrap()).unwrap();
                        Ok(response)
                    }
                });
                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    });
    Hook { kubeconfig, answers, received, _folder: folder }
}

impl Hook {
    async fn next(&mut self) -> Value {
        tokio::time::timeout(Duration::from_secs(20), self.received.recv()).await.unwrap().unwrap()
    }

    fn backend(
        &self,
        mode: Mode,
        metrics: &Metrics,
        change: impl FnOnce(&mut WebhookOptions),
    ) -> WebhookBackend {
        let mut options = WebhookOptions {
            kubeconfig: self.kubeconfig.clone(),
            initial_backoff: Duration::from_millis(10),
            batch: BatchOptions {
                mode,
                buffer_events_max: 100,
                batch_events_max: 10,
                batch_wait_max: Duration::from_millis(200),
                throttle: Some(Throttle { qps: 1000.0, burst: 10 }),
            },
            truncate: None,
        };
        change(&mut options);
        WebhookBackend::start(options, metrics.clone()).unwrap()
    }
}

/// Returns the metric of events that a plugin lost.
fn lost(metrics: &Metrics, plugin: &str) -> u64 {
    let mut registry = prometheus_client::registry::Registry::default();
    metrics.register(&mut registry);
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    let name = format!("apiserver_audit_error_total{{plugin=\"{plugin}\"}} ");
    text.lines().find_map(|line| line.strip_prefix(&name)).map_or(0, |count| count.parse().unwrap())
}

fn event(number: usize) -> Bytes {
    format!("{{\"kind\":\"Event\",\"apiVersion\":\"audit.k8s.io/v1\",\"level\":\"{number}\"}}").into()
}

#[tokio::test]
async fn events_arrive_in_batches_and_the_rest_on_close() {
    let mut hook = hook(&[]).await;
    let backend = hook.backend(Mode::Batch, &Metrics::default(), |_| {});
    for number in 0..25 {
        assert!(matches!(backend.offer(&event(number), Delivery::Awaited), Ticket::Done(true)));
    }
    backend.close().await;
    let mut items = Vec::new();
    for _ in 0..3 {
        let list = hook.next().await;
        assert_eq!((&list["kind"], &list["apiVersion"]), (&"EventList".into(), &"audit.k8s.io/v1".into()));
        items.extend(list["items"].as_array().unwrap().clone());
    }
    assert_eq!(items.len(), 25);
    assert!(items.iter().all(|item| item.get("kind").is_none()));
    assert!(matches!(backend.offer(&event(0), Delivery::Awaited), Ticket::Done(false)), "closed");
}

#[tokio::test]
async fn failures_are_retried_and_nothing_is_lost() {
    let answers = [Answer::Code(500), Answer::Cut, Answer::Code(302), Answer::Code(403)];
    let (mut hook, metrics) = (hook(&answers).await, Metrics::default());
    let backend = hook.backend(Mode::Batch, &metrics, |_| {});
    backend.offer(&event(1), Delivery::Awaited);
    assert_eq!(hook.next().await["items"][0]["level"], "1");
    assert_eq!(lost(&metrics, "webhook"), 0);
}

#[tokio::test]
async fn lasting_failure_loses_events_and_counts_them() {
    let (hook, metrics) = (hook(&[Answer::Code(500); 5]).await, Metrics::default());
    let backend = hook.backend(Mode::Blocking, &metrics, |_| {});
    let Ticket::Pending(sent) = backend.offer(&event(1), Delivery::Awaited) else { panic!("blocks") };
    assert!(!sent.await);
    assert_eq!(lost(&metrics, "webhook"), 1);
    assert!(hook.answers.lock().unwrap().is_empty(), "five attempts");
}

#[tokio::test]
async fn hanging_webhook_fills_the_queue_and_delays_nobody() {
    let (hook, metrics) = (hook(&[Answer::Slow(Duration::from_secs(600)); 100]).await, Metrics::default());
    let backend = hook.backend(Mode::Batch, &metrics, |options| {
        (options.batch.buffer_events_max, options.batch.batch_events_max) = (5, 1);
    });
    let started = Instant::now();
    let mut refused = 0;
    for number in 0..500 {
        refused +=
            usize::from(matches!(backend.offer(&event(number), Delivery::Awaited), Ticket::Done(false)));
        tokio::task::yield_now().await;
    }
    assert!(started.elapsed() < Duration::from_secs(10));
    assert!(refused > 0);
    assert_eq!(lost(&metrics, "buffered"), refused as u64);
}

#[tokio::test]
async fn large_events_are_truncated_and_large_batches_split() {
    let (mut hook, metrics) = (hook(&[]).await, Metrics::default());
    let backend = hook.backend(Mode::Batch, &metrics, |options| {
        options.truncate = Some(TruncateOptions { event_bytes_max: 1000, batch_bytes_max: 1500 });
    });
    let policy = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Request}]";
    let backends: Vec<Arc<dyn Backend>> = vec![Arc::new(backend)];
    let auditor = Auditor::new(Policy::parse(policy.as_bytes()).unwrap(), backends, metrics.clone());
    let uri = Uri::from_static("/api/v1/namespaces/a/configmaps");
    let attributes = Attributes::of(&Method::POST, uri.path(), &Query::default());
    let id = HeaderValue::from_static("1");
    let time = Time::from_unix(0);
    let mut large = Event::new(Level::Request, id, uri, attributes.into(), &HeaderMap::new(), None, time);
    large.request_object = Some(format!("{{\"data\":\"{}\"}}", "x".repeat(5000)).into());
    for _ in 0..5 {
        assert!(auditor.record(&large, Stage::ResponseComplete, time, Delivery::Awaited).await);
    }
    let mut huge = large.clone();
    huge.annotations.add("large", "x".repeat(5000));
    auditor.record(&huge, Stage::ResponseComplete, time, Delivery::Awaited).await;
    auditor.close().await;
    let mut events = 0;
    while events < 5 {
        let list = hook.next().await;
        let items = list["items"].as_array().unwrap();
        assert!(list.to_string().len() < 1800, "{list}");
        for item in items {
            assert!(item.get("requestObject").is_none());
            assert_eq!(item["annotations"]["audit.k8s.io/truncated"], "true");
        }
        events += items.len();
    }
    assert_eq!(lost(&metrics, "truncate"), 1);
}

#[tokio::test]
async fn unusable_kubeconfig_is_refused() {
    let hook = hook(&[]).await;
    std::fs::write(&hook.kubeconfig, "kind: Config").unwrap();
    let options = WebhookOptions {
        kubeconfig: hook.kubeconfig.clone(),
        initial_backoff: Duration::ZERO,
        batch: BatchOptions {
            mode: Mode::Batch,
            buffer_events_max: 1,
            batch_events_max: 1,
            batch_wait_max: Duration::ZERO,
            throttle: None,
        },
        truncate: None,
    };
    let refused = WebhookBackend::start(options, Metrics::default()).unwrap_err();
    assert!(refused.to_string().contains("current-context"), "{refused}");
}
