//! Conversion webhooks over TLS.

use std::{ops::Deref, sync::Mutex};

use base64::{Engine, engine::general_purpose::STANDARD};
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use orlop_server::serve::serve;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

use crate::{
    hook::{self, Reply},
    server::{DEFINITIONS, PATIENCE, Server, path, version, widget, widgets},
};

/// A conversion webhook.
struct Hook(hook::Hook);

impl Deref for Hook {
    type Target = hook::Hook;

    fn deref(&self) -> &hook::Hook {
        &self.0
    }
}

impl Hook {
    /// Converts `size` of v1 to `width` of v2.
    async fn start() -> Self {
        Self(hook::Hook::start(&["converter.default.svc"], |review| Reply::Json(converted(review))).await)
    }

    fn answers(&self, answer: impl Fn(&Value) -> Value + Send + Sync + 'static) {
        self.0.answers(move |review| Reply::Json(answer(review)));
    }

    fn conversion(&self, target: Value) -> Value {
        let mut client = target;
        client["caBundle"] = self.ca_bundle.clone().into();
        json!({"strategy": "Webhook", "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}})
    }

    fn url(&self) -> Value {
        json!({"url": format!("https://127.0.0.1:{}/convert", self.port)})
    }
}

fn converted(review: &Value) -> Value {
    let wanted = review["request"]["desiredAPIVersion"].as_str().unwrap();
    let (from, to) = if wanted.ends_with("/v2") { ("size", "width") } else { ("width", "size") };
    let objects = review["request"]["objects"].as_array().unwrap().iter().map(|object| {
        let mut object = object.clone();
        let value = object["spec"].as_object_mut().unwrap().remove(from).unwrap_or_default();
        object["spec"][to] = value;
        object["apiVersion"] = wanted.into();
        object
    });
    let objects: Vec<Value> = objects.collect();
    json!({
        "apiVersion": review["apiVersion"], "kind": "ConversionReview",
        "response": {"uid": review["request"]["uid"], "result": {"status": "Success"}, "convertedObjects": objects},
    })
}

async fn serving(conversion: Value) -> Server {
    let server = Server::start().await;
    let mut definition = widgets(json!([
        version("v1", true, json!({"size": {"type": "integer"}})),
        version(
            "v2",
            false,
            json!({"width": {"type": "integer"}, "unit": {"type": "string", "default": "mm"}})
        ),
    ]));
    definition["spec"]["conversion"] = conversion;
    server.create(DEFINITIONS, &definition).await.ok();
    server
}

#[tokio::test]
async fn webhook_converts_reads_writes_lists_and_watches() {
    let hook = Hook::start().await;
    let server = serving(hook.conversion(hook.url())).await;
    let add = async |index: usize| {
        server.create(&path("v1"), &widget("v1", &format!("w{index:02}"), json!({"size": index}))).await.ok();
    };
    for index in 0..10 {
        add(index).await;
    }
    assert_eq!(hook.calls(), 0, "what is served as it is stored is not converted");
    let mut watch = server.watch(&format!("{}?watch=true", path("v2"))).await;
    for index in 10..20 {
        add(index).await;
    }
    for index in 0..20 {
        assert_eq!(watch.next().await.unwrap()["object"]["spec"], json!({"width": index}));
    }
    drop(watch);
    let before = hook.calls();
    let listed = server.get(&path("v2")).await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 20);
    assert_eq!(listed["items"][7]["spec"], json!({"width": 7}));
    assert_eq!(hook.calls(), before + 1, "a page is converted in one call");

    let answered = server.create(&path("v2"), &widget("v2", "new", json!({"width": 3}))).await.ok();
    assert_eq!(answered["spec"], json!({"width": 3}), "v1 has no place for the default of v2");
    assert_eq!(server.get(&format!("{}/new", path("v1"))).await.ok()["spec"], json!({"size": 3}));
    let merged = server.merge(&format!("{}/new", path("v2")), json!({"spec": {"width": 4}})).await.ok();
    assert_eq!(merged["metadata"]["generation"], 2);
    assert_eq!(server.get(&format!("{}/new", path("v1"))).await.ok()["spec"], json!({"size": 4}));
    server.delete(&format!("{}/new", path("v2"))).await.ok();
}

#[tokio::test]
async fn webhook_is_reached_through_a_service() {
    let hook = Hook::start().await;
    let service = json!({"service": {"namespace": "default", "name": "converter", "path": "/convert", "port": hook.port}});
    let server = serving(hook.conversion(service)).await;
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    let name = format!("{}/a", path("v2"));
    let missing = server.get(&name).await.refused(500);
    assert_eq!(
        missing,
        format!(
            "Internal error occurred: conversion webhook for example.com/v1, Kind=Widget failed: \
             Post \"https://converter.default.svc:{}/convert?timeout=30s\": service \"converter\" not found",
            hook.port
        )
    );
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "converter"},
        "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
    server.create("/api/v1/namespaces/default/services", &service).await.ok();
    assert_eq!(server.get(&name).await.ok()["spec"]["width"], 1);
}

#[tokio::test]
async fn invalid_webhook_conversions_are_refused() {
    let hook = Hook::start().await;
    let server = serving(hook.conversion(hook.url())).await;
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    let name = format!("{}/a", path("v2"));
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 7] = [
        (|answer| answer["response"]["uid"] = "other".into(), "failed: expected response.uid="),
        (|answer| answer["response"]["result"] = json!({"status": "Failure", "message": "no"}), "failed: no"),
        (|answer| answer["response"]["convertedObjects"] = json!([]), "returned 0 objects, expected 1"),
        (
            |answer| answer["kind"] = "Other".into(),
            "failed: expected webhook response of apiextensions.k8s.io/v1, Kind=ConversionReview",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["apiVersion"] = "example.com/v3".into(),
            "invalid groupVersion (expected example.com/v2, received example.com/v3)",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["kind"] = "Gadget".into(),
            "invalid kind (expected Widget, received Gadget)",
        ),
        (
            |answer| answer["response"]["convertedObjects"][0]["metadata"]["name"] = "b".into(),
            "must have the same name: a != b",
        ),
    ];
    for (change, expected) in cases {
        hook.answers(move |review| {
            let mut answer = converted(review);
            change(&mut answer);
            answer
        });
        let answer = server.get(&name).await;
        assert_eq!(answer.body["reason"], "InternalError", "{}", answer.body);
        let cause = answer.body["details"]["causes"][0]["message"].as_str().unwrap().to_owned();
        let message = answer.refused(500);
        assert_eq!(message, format!("Internal error occurred: {cause}"));
        assert!(cause.starts_with("conversion webhook for example.com/v1, Kind=Widget "), "{message}");
        assert!(cause.contains(expected), "{message}\n  wanted {expected}");
        let listed = server.get(&path("v2")).await.body;
        assert_eq!(listed["reason"], "StorageReadError", "{listed}");
        let details = &listed["details"];
        assert_eq!((&details["group"], &details["kind"]), (&json!("example.com"), &json!("widgets")));
        assert!(details["causes"][0]["message"].as_str().unwrap().contains(expected), "{listed}");
    }
    // A webhook may change only labels and annotations of metadata.
    hook.answers(|review| {
        let mut answer = converted(review);
        let metadata = &mut answer["response"]["convertedObjects"][0]["metadata"];
        metadata["labels"] = json!({"by": "webhook"});
        metadata["generation"] = json!(99);
        metadata["finalizers"] = json!(["example.com/never"]);
        answer
    });
    let metadata = server.get(&name).await.ok()["metadata"].clone();
    assert_eq!((&metadata["labels"]["by"], &metadata["generation"]), (&json!("webhook"), &json!(1)));
    assert_eq!(metadata.get("finalizers"), None);
    // The storage version needs no webhook.
    server.get(&format!("{}/a", path("v1"))).await.ok();
}

/// A CA that signed nothing here.
fn stranger(name: &str) -> String {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().unwrap();
    STANDARD.encode(params.self_signed(&key).unwrap().pem())
}

#[tokio::test]
async fn webhook_with_untrusted_certificate_is_refused() {
    let hook = Hook::start().await;
    let url = format!("https://127.0.0.1:{}/convert", hook.port);
    let service =
        json!({"service": {"namespace": "default", "name": "other", "path": "/convert", "port": hook.port}});
    let by_url = json!({"url": url});
    let by_localhost = json!({"url": format!("https://localhost:{}/", hook.port)});
    let cases = [
        (by_url.clone(), stranger("stranger"), "certificate signed by unknown authority".to_owned()),
        // A CA with the same name as the right one.
        (
            by_url,
            stranger("orlop"),
            "certificate signed by unknown authority (possibly because of \"x509: ECDSA verification failure\" \
             while trying to verify candidate authority certificate \"orlop\")"
                .to_owned(),
        ),
        (
            service,
            hook.ca_bundle.clone(),
            "certificate is valid for localhost, converter.default.svc, not other.default.svc".to_owned(),
        ),
        (by_localhost, stranger("stranger"), "certificate signed by unknown authority".to_owned()),
    ];
    for (client, ca_bundle, expected) in cases {
        let address = match client["url"].as_str() {
            Some(url) => format!("{url}?timeout=30s"),
            None => format!("https://other.default.svc:{}/convert?timeout=30s", hook.port),
        };
        let mut conversion = hook.conversion(client);
        conversion["webhook"]["clientConfig"]["caBundle"] = ca_bundle.into();
        let server = serving(conversion).await;
        let other = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "other"},
            "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
        server.create("/api/v1/namespaces/default/services", &other).await.ok();
        server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
        assert_eq!(
            server.get(&format!("{}/a", path("v2"))).await.refused(500),
            format!(
                "Internal error occurred: conversion webhook for example.com/v1, Kind=Widget failed: Post {address:?}: \
                 tls: failed to verify certificate: x509: {expected}"
            )
        );
    }
    assert_eq!(hook.calls(), 0);
}

#[tokio::test]
async fn definition_with_webhook_is_established_once_ca_bundle_is_valid() {
    let hook = Hook::start().await;
    let name = format!("{DEFINITIONS}/widgets.example.com");
    let pem =
        |label: &str| STANDARD.encode(format!("-----BEGIN {label}-----\naGVsbG8=\n-----END {label}-----\n"));
    for (bundle, why) in [
        // Placeholder of CA injectors.
        (STANDARD.encode("\n"), "unable to parse bytes as PEM block"),
        (STANDARD.encode("nonsense"), "unable to parse bytes as PEM block"),
        (pem("PUBLIC KEY"), "no valid certificate authority data seen"),
        (pem("CERTIFICATE"), "failed to parse certificate: x509: malformed certificate"),
    ] {
        let bundle_is = |bundle: &str| json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": bundle}}}}});
        let mut conversion = hook.conversion(hook.url());
        conversion["webhook"]["clientConfig"]["caBundle"] = bundle.clone().into();
        let server = serving(conversion).await;
        let made = server.get(&name).await.ok();
        let conditions = made["status"]["conditions"].as_array().unwrap();
        let established = conditions.iter().find(|condition| condition["type"] == "Established").unwrap();
        assert_eq!(
            (&established["status"], &established["reason"], &established["message"]),
            (
                &json!("False"),
                &json!("InvalidCABundle"),
                &json!("The conversion webhook CABundle is invalid")
            )
        );
        assert_eq!(server.get("/apis/example.com/v1").await.code, 404, "it is not served");

        let trusted = server.merge(&name, bundle_is(&hook.ca_bundle)).await.ok();
        let conditions = trusted["status"]["conditions"].as_array().unwrap();
        assert!(
            conditions.iter().any(|c| c["type"] == "Established" && c["reason"] == "InitialNamesAccepted"),
            "{conditions:?}"
        );
        server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
        assert_eq!(server.get(&format!("{}/a", path("v2"))).await.ok()["spec"]["width"], 1);
        // Once valid, it cannot be made invalid again.
        assert_eq!(
            server.merge(&name, bundle_is(&bundle)).await.refused(422),
            format!(
                "CustomResourceDefinition.apiextensions.k8s.io \"widgets.example.com\" is invalid: \
                 spec.conversion.webhookClientConfig.caBundle: Invalid value: {bundle:?}: \
                 unable to load root certificates: {why}"
            )
        );
    }
}

#[tokio::test]
async fn plain_http_webhook_error_matches_go() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut socket, _) = listener.accept().await.unwrap();
            let answer = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
            let _ = tokio::io::AsyncWriteExt::write_all(&mut socket, answer).await;
        }
    });
    let hook = Hook::start().await;
    let server = serving(hook.conversion(json!({"url": format!("https://127.0.0.1:{port}")}))).await;
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    assert_eq!(
        server.get(&format!("{}/a", path("v2"))).await.refused(500),
        format!(
            "Internal error occurred: conversion webhook for example.com/v1, Kind=Widget failed: \
             Post \"https://127.0.0.1:{port}/?timeout=30s\": http: server gave HTTP response to HTTPS client"
        )
    );
}

/// Managed fields are stored in the version of each manager: an apply in one version converts those of the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn webhook_converts_managed_fields() {
    let hook = Hook::start().await;
    let server = serving(hook.conversion(hook.url())).await;
    let name = |version: &str, manager: &str, more: &str| {
        format!("{}/a?fieldManager={manager}{more}", path(version))
    };
    server.apply(&name("v1", "one", ""), &widget("v1", "a", json!({"size": 1}))).await.ok();
    assert_eq!(hook.calls(), 0);
    // `width` of v2 is `size` of v1, which another manager owns: only the webhook knows.
    let message =
        server.apply(&name("v2", "two", ""), &widget("v2", "a", json!({"width": 2}))).await.refused(409);
    assert!(message.contains("conflict with \"one\": .spec.size"), "{message}");
    assert!(hook.calls() > 0);

    let applied =
        server.apply(&name("v2", "two", "&force=true"), &widget("v2", "a", json!({"width": 2}))).await.ok();
    assert_eq!(applied["spec"]["width"], 2);
    let owners = |object: &Value| -> Vec<(String, String)> {
        let all = object["metadata"]["managedFields"].as_array().unwrap().iter();
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
        all.map(|entry| (text(entry, "manager"), text(entry, "apiVersion"))).collect()
    };
    assert_eq!(owners(&applied), [("two".to_owned(), "example.com/v2".to_owned())]);
    assert_eq!(server.get(&format!("{}/a", path("v1"))).await.ok()["spec"]["size"], 2);

    // A failing webhook fails the write.
    hook.answers(|review| {
        let mut answer = converted(review);
        answer["response"]["result"] = json!({"status": "Failure", "message": "not today"});
        answer
    });
    let failed =
        server.apply(&name("v1", "one", "&force=true"), &widget("v1", "a", json!({"size": 3}))).await;
    assert_eq!(failed.code, 500, "{}", failed.body);
    let message = failed.body["message"].as_str().unwrap();
    assert!(message.contains("not today"), "{message}");
    hook.answers(converted);
    assert_eq!(server.get(&format!("{}/a", path("v1"))).await.ok()["spec"]["size"], 2);
}

/// An informer that were not told would take its cache for complete.
#[tokio::test]
async fn watch_fails_if_an_object_cannot_be_converted() {
    let hook = Hook::start().await;
    let server = serving(hook.conversion(hook.url())).await;
    let watched = format!("{}?watch=true", path("v2"));
    let mut watch = server.watch(&watched).await;
    hook.answers(|review| {
        let mut answer = converted(review);
        answer["response"]["result"] = json!({"status": "Failure", "message": "not today"});
        answer
    });
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    let event = watch.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["kind"]), (&json!("ERROR"), &json!("Status")));
    assert!(event["object"]["message"].as_str().unwrap().contains("not today"), "{event}");
    assert!(watch.next().await.is_none());

    let refused = server.get(&watched).await;
    assert_eq!(refused.body["details"]["retryAfterSeconds"], 1, "{}", refused.body);
    assert!(refused.refused(429).contains("not today"));
}

#[tokio::test]
async fn webhook_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let hook = Hook::start().await;
    let server = serving(hook.conversion(json!({"url": format!("https://127.0.0.1:{port}/convert")}))).await;
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    // From here on paused time advances when all tasks wait.
    tokio::time::pause();
    assert_eq!(
        server.get(&format!("{}/a", path("v2"))).await.refused(500),
        format!(
            "Internal error occurred: conversion webhook for example.com/v1, Kind=Widget failed: \
             Post \"https://127.0.0.1:{port}/convert?timeout=30s\": context deadline exceeded"
        )
    );
    drop(listener);
}

/// Requests that wait for a webhook, more than there are worker threads, leave the others of their connection alone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stalled_webhook_delays_no_other_request_of_its_connection() {
    let hook = Hook::start().await;
    let server = serving(hook.conversion(hook.url())).await;
    server.create(&path("v1"), &widget("v1", "a", json!({"size": 1}))).await.ok();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let released = Mutex::new(released);
    // The webhook's own runtime has threads to spare for answers that wait.
    hook.answers(move |review| {
        let _ = tokio::task::block_in_place(|| released.lock().unwrap().recv());
        converted(review)
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, server.chain.clone(), None, std::future::pending()));
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (sender, connection) = http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let send = |method: &str, path: &str, media_type: &str, body: &str| {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://{address}{path}"))
            .header("authorization", "Bearer secret")
            .header("content-type", media_type);
        let request = request.body(Full::new(Bytes::from(body.to_owned()))).unwrap();
        let mut sender = sender.clone();
        async move { sender.send_request(request).await.unwrap().status().as_u16() }
    };
    let converted = format!("{}/a", path("v2"));
    let mut stalled = JoinSet::new();
    for _ in 0..4 {
        stalled.spawn(send("GET", &converted, "", ""));
        stalled.spawn(send("PATCH", &converted, "application/merge-patch+json", r#"{"spec": {"width": 2}}"#));
    }
    let called = async {
        while hook.calls() == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, called).await.expect("the webhook is called");
    for path in ["/livez", "/api/v1/namespaces/default", path("v1").as_str()] {
        let answer = tokio::time::timeout(PATIENCE, send("GET", path, "", "")).await;
        assert_eq!(answer.expect("answered beside the stalled ones"), 200, "{path}");
    }
    assert!(stalled.try_join_next().is_none(), "none was answered meanwhile");
    drop(release);
    while let Some(code) = stalled.join_next().await {
        assert!(matches!(code.unwrap(), 200 | 409), "once the webhook answers");
    }
}
