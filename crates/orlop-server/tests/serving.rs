//! Health during the start, compression, websockets, metrics, HEAD, unread bodies.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod support;

use std::{io::Read, net::SocketAddr, sync::Arc};

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use bytes::Bytes;
use futures_util::StreamExt;
use http::{Request, header};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use orlop_server::{
    Hygiene, Tokens, User,
    auth::{issuer::Issuer, pki::Authority},
    bootstrap,
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
    serve::serve,
};
use orlop_store::{Config, Endpoint, Store};
use serde_json::{Value, json};
use support::{ask, config_map, create, get, server, whole};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_tungstenite::tungstenite::{Message, client::IntoClientRequest};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Starts a server on a loopback port; `secret` is the administrator's token.
async fn listening() -> (Chain, SocketAddr) {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Arc::new(Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap()));
    let chain = Chain::new(cluster, Tokens::new(vec![("secret".to_owned(), User::master("admin"))]));
    bootstrap::bootstrap(&chain, 6443, "").await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, chain.clone(), None, std::future::pending()));
    (chain, address)
}

#[tokio::test]
async fn unknown_paths_return_503_until_routes_are_installed() {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Arc::new(Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap()));
    let chain = Chain::new(cluster, Tokens::default());
    chain.expect(bootstrap::STEPS);
    for path in ["/apis/example.org/v1/things", "/apis/example.org/v1", "/nothing", "/api/v1/things"] {
        let (code, headers, body) = whole(ask(&chain, "GET", path, &[], "").await).await;
        let status: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((code, &headers[header::RETRY_AFTER]), (503, &"5".parse().unwrap()), "{path}");
        assert_eq!(status["reason"], "ServiceUnavailable");
        let told =
            "the request has been made before all known HTTP paths have been installed, please try again";
        assert_eq!(status["message"], told);
    }
    assert_eq!(get(&chain, "/api/v1/namespaces/nowhere").await.0, 404);
    let (code, report) = get(&chain, "/readyz").await;
    let report = report.as_str().unwrap();
    assert_eq!(code, 500);
    assert!(report.contains("[-]poststarthook/crd-informer-synced failed: reason withheld\n"), "{report}");
    assert!(report.ends_with("readyz check failed\n"), "{report}");

    bootstrap::bootstrap(&chain, 6443, "").await.unwrap();
    assert_eq!(get(&chain, "/readyz").await, (200, "ok".into()));
    assert_eq!(get(&chain, "/apis/example.org/v1/things").await, (404, "404 page not found\n".into()));
    assert_eq!(get(&chain, "/api/v1/things").await.1["reason"], "NotFound");
    let (_, report) = get(&chain, "/livez?verbose&exclude=ping&exclude=nonsense").await;
    let report = report.as_str().unwrap();
    assert!(report.starts_with("[+]ping excluded: ok\n[+]log ok\n[+]etcd ok\n"), "{report}");
    let warning =
        "warn: some health checks cannot be excluded: no matches for \"nonsense\"\nlivez check passed\n";
    assert!(report.ends_with(warning), "{report}");
    assert_eq!(get(&chain, "/healthz/poststarthook/bootstrap-controller").await, (200, "ok".into()));
    assert_eq!(get(&chain, "/healthz/shutdown").await.0, 404);
}

#[tokio::test]
async fn bootstrap_updates_the_server_address() {
    let (chain, _store) = server().await;
    let ca = Authority::generate().unwrap().certificate().to_owned();
    bootstrap::bootstrap(&chain, 7443, &ca).await.unwrap();
    let (_, endpoints) = get(&chain, "/api/v1/namespaces/default/endpoints/kubernetes").await;
    assert_eq!(endpoints["subsets"][0]["ports"][0]["port"], 7443);
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes";
    assert_eq!(get(&chain, slices).await.1["ports"][0]["port"], 7443);
    let (_, service) = get(&chain, "/api/v1/namespaces/default/services/kubernetes").await;
    assert_eq!(service["spec"]["ports"][0]["targetPort"], 7443);
    assert_eq!(service["spec"]["clusterIP"], "10.0.0.1");
    let trusted = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    assert_eq!(
        get(&chain, trusted).await.1["data"]["client-ca-file"].as_str().map(str::trim),
        Some(ca.trim())
    );
}

#[tokio::test]
async fn long_responses_are_compressed_and_watches_are_not() {
    let (chain, _store) = server().await;
    for number in 0..3 {
        let mut object = config_map(&format!("c{number}"), &json!({}));
        object["data"] = json!({"text": format!("{number} lines of it\n").repeat(10_000)});
        create(&chain, MAPS, &object).await;
    }
    let asking = [("accept-encoding", "gzip")];
    for path in [MAPS.to_owned(), format!("{MAPS}/c1")] {
        let (_, _, plain) = whole(ask(&chain, "GET", &path, &[], "").await).await;
        let (code, headers, compressed) = whole(ask(&chain, "GET", &path, &asking, "").await).await;
        assert_eq!((code, &headers[header::CONTENT_ENCODING]), (200, &"gzip".parse().unwrap()));
        assert_eq!(headers[header::VARY], "Accept-Encoding");
        assert!(compressed.len() < plain.len() / 10, "{} of {}", compressed.len(), plain.len());
        let mut back = Vec::new();
        flate2::read::GzDecoder::new(&compressed[..]).read_to_end(&mut back).unwrap();
        assert!(back == plain, "{path}");
    }
    let short = ask(&chain, "GET", "/api/v1/namespaces/default", &asking, "").await;
    assert!(!short.headers().contains_key(header::CONTENT_ENCODING));
    let watch = ask(&chain, "GET", &format!("{MAPS}?watch=1"), &asking, "").await;
    assert!(!watch.headers().contains_key(header::CONTENT_ENCODING));
}

#[tokio::test]
async fn long_list_is_compressed_while_streamed() {
    let (chain, store) = server().await;
    // Written to the store directly, which is faster than the API.
    let puts = (0..10_000).map(|number| {
        let value = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"metadata\":{{\"name\":\"s{number:05}\",\"namespace\":\"many\"}}}}"
        );
        let key = format!("/registry/core/secrets/many/s{number:05}");
        orlop_store::Op::Put(orlop_store::Put::new(key, value))
    });
    let puts: Vec<_> = puts.collect();
    for chunk in puts.chunks(500) {
        store.txn(orlop_store::Txn::of(chunk.iter().cloned())).await.unwrap();
    }
    let path = "/api/v1/namespaces/many/secrets";
    let (code, headers, compressed) =
        whole(ask(&chain, "GET", path, &[("accept-encoding", "gzip")], "").await).await;
    assert_eq!((code, &headers[header::CONTENT_ENCODING]), (200, &"gzip".parse().unwrap()));
    let list: Value = serde_json::from_reader(flate2::read::GzDecoder::new(&compressed[..])).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 10_000);
}

#[tokio::test]
async fn http2_client_is_told_to_go_away_and_loses_no_request() {
    let (chain, _store) = server().await;
    let chain = chain.with_hygiene(Hygiene::new(&[], &[], 0.02).unwrap());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(serve(listener, chain, None, std::future::pending()));
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    let connection = tokio::spawn(connection);
    let mut answered = 0;
    // One request in fifty ends the connection, so that 10,000 of them surely do.
    while sender.ready().await.is_ok() && answered < 10_000 {
        let request = Request::get(format!("http://{address}/livez")).body(Empty::<Bytes>::new()).unwrap();
        match sender.send_request(request).await {
            Ok(response) => assert_eq!(response.status(), 200),
            // Sent after GOAWAY: the client knows that the server has not seen it.
            Err(error) => assert!(error.is_canceled() || error.is_closed(), "{error:?}"),
        }
        answered += 1;
    }
    assert!((1..10_000).contains(&answered), "{answered}");
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn websocket_watch_sends_an_event_per_message() {
    let (chain, address) = listening().await;
    let version = create(&chain, MAPS, &config_map("before", &json!({}))).await;
    let url = format!("ws://{address}{MAPS}?watch=1&resourceVersion={version}");
    let mut request = url.as_str().into_client_request().unwrap();
    let token = URL_SAFE_NO_PAD.encode("secret");
    let protocols = format!("base64url.bearer.authorization.k8s.io.{token}, base64.binary.k8s.io");
    request.headers_mut().insert(header::SEC_WEBSOCKET_PROTOCOL, protocols.parse().unwrap());
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut socket, response) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    assert_eq!(response.headers()[header::SEC_WEBSOCKET_PROTOCOL], "base64.binary.k8s.io");
    for name in ["a", "b"] {
        create(&chain, MAPS, &config_map(name, &json!({}))).await;
    }
    for name in ["a", "b"] {
        let Message::Text(text) = socket.next().await.unwrap().unwrap() else { panic!("not a text") };
        let event: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(support::short(&event), format!("ADDED {name}"));
    }
    // Shutdown ends the watch with a close frame.
    chain.close();
    assert!(socket.next().await.unwrap().unwrap().is_close());
}

#[tokio::test]
async fn websocket_upgrade_needs_credentials_and_a_valid_handshake() {
    let (_chain, address) = listening().await;
    for (path, token, code) in [
        (format!("{MAPS}?watch=1"), None, 403),
        (format!("{MAPS}?watch=1"), Some("wrong"), 401),
        (format!("{MAPS}?watch=1&resourceVersion=x"), Some("secret"), 400),
    ] {
        let mut request = format!("ws://{address}{path}").as_str().into_client_request().unwrap();
        if let Some(token) = token {
            request.headers_mut().insert(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap());
        }
        let stream = TcpStream::connect(address).await.unwrap();
        let refused = tokio_tungstenite::client_async(request, stream).await.unwrap_err();
        let tokio_tungstenite::tungstenite::Error::Http(response) = refused else { panic!("{refused}") };
        assert_eq!(response.status(), code, "{path}");
    }
}

#[tokio::test]
async fn request_metrics_have_kubernetes_names() {
    let (chain, _store) = server().await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    get(&chain, &format!("{MAPS}/a")).await;
    get(&chain, &format!("{MAPS}/missing")).await;
    get(&chain, &format!("{MAPS}?limit=5")).await;
    // Names from clients must not become label values.
    for number in 0..50 {
        get(&chain, &format!("/apis/group{number}.example.org/v1/made-up")).await;
        get(&chain, &format!("{MAPS}/a/made-up-{number}")).await;
    }
    let mut watch = support::Events::of(&chain, &format!("{MAPS}?watch=1")).await;
    watch.next_short(1).await;
    let page = |text: Value| text.as_str().unwrap().to_owned();
    let text = page(get(&chain, "/metrics").await.1);
    let line = |wanted: &[&str]| {
        let found = text
            .lines()
            .find(|line| line.starts_with(wanted[0]) && wanted.iter().all(|part| line.contains(part)));
        found.unwrap_or_else(|| panic!("no line with {wanted:?} in\n{text}")).to_owned()
    };
    let maps = "resource=\"configmaps\"";
    let count = |parts: &[&str]| line(parts).rsplit(' ').next().unwrap().to_owned();
    let total = "apiserver_request_total{";
    assert_eq!(
        count(&[total, maps, "verb=\"GET\"", "scope=\"resource\"", "subresource=\"\"", "code=\"200\""]),
        "1"
    );
    assert_eq!(
        count(&[total, maps, "verb=\"GET\"", "scope=\"resource\"", "subresource=\"\"", "code=\"404\""]),
        "1"
    );
    assert_eq!(count(&[total, maps, "verb=\"LIST\"", "scope=\"namespace\"", "code=\"200\""]), "1");
    assert_eq!(count(&["apiserver_request_duration_seconds_count{", maps, "verb=\"LIST\""]), "1");
    assert_eq!(count(&["apiserver_response_sizes_count{", maps, "verb=\"LIST\""]), "1");
    assert_eq!(count(&["apiserver_longrunning_requests{", maps, "verb=\"WATCH\""]), "1");
    assert_eq!(count(&["apiserver_watch_events_total{", maps, "version=\"v1\""]), "1");
    assert_eq!(count(&["apiserver_current_inflight_requests{request_kind=\"readOnly\"}"]), "1");
    assert_eq!(count(&["apiserver_storage_objects{resource=\"namespaces\"}"]), "4");
    assert!(count(&["process_resident_memory_bytes "]).parse::<u64>().unwrap() > 1 << 20);
    line(&["# TYPE apiserver_request_total counter"]);
    line(&["kine_sql_total{"]);
    assert!(!text.contains("made-up"), "{text}");

    drop(watch);
    let text = page(get(&chain, "/metrics").await.1);
    let gone = text.lines().find(|line| line.starts_with("apiserver_longrunning_requests{")).unwrap();
    assert!(gone.ends_with(" 0"), "{gone}");
    let levels = page(get(&chain, "/metrics/slis").await.1);
    assert!(levels.contains("kubernetes_healthcheck{name=\"ping\",type=\"healthz\"} 1"), "{levels}");
    let open = ask(&chain, "GET", "/metrics", &[("accept", "application/openmetrics-text")], "").await;
    assert!(whole(open).await.2.ends_with(b"# EOF\n"));
}

#[tokio::test]
async fn shutdown_ends_watches_and_refuses_new_ones() {
    let (chain, _store) = server().await;
    let watch = support::Events::of(&chain, &format!("{MAPS}?watch=1")).await;
    chain.close();
    assert!(watch.all().await.is_empty());
    for path in [&format!("{MAPS}?watch=1"), "/orlop/v1/changes"] {
        let (code, headers, body) = whole(ask(&chain, "GET", path, &[], "").await).await;
        let status: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((code, &headers[header::RETRY_AFTER]), (429, &"5".parse().unwrap()), "{path}");
        assert_eq!(status["message"], "The apiserver is shutting down, please try again later.");
    }
    assert_eq!(get(&chain, MAPS).await.0, 200, "what does not stay open is still answered");
}

/// Sends a HEAD over HTTP/2, and returns the code, the content length and the body.
async fn head_over_http2(address: SocketAddr, path: &str, token: Option<&str>) -> (u16, String, Bytes) {
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let mut request = Request::head(format!("http://{address}{path}"));
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let request = request.body(Empty::<Bytes>::new()).unwrap();
    let (parts, body) = sender.send_request(request).await.unwrap().into_parts();
    let length = parts.headers.get("content-length").map(|length| length.to_str().unwrap().to_owned());
    (parts.status.as_u16(), length.unwrap_or_default(), body.collect().await.unwrap().to_bytes())
}

#[tokio::test]
async fn head_over_http2_has_a_length_and_no_body() {
    let (chain, address) = listening().await;
    create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let path = format!("{MAPS}/a");
    let (_, _, body) = whole(ask(&chain, "GET", &path, &[], "").await).await;
    let (code, length, none) = head_over_http2(address, &path, Some("secret")).await;
    assert_eq!((code, length, none.len()), (200, body.len().to_string(), 0));
    assert_eq!(head_over_http2(address, MAPS, None).await.2.len(), 0, "a refusal has no body either");
}

#[tokio::test]
async fn head_is_allowed_where_get_is() {
    let (_chain, address) = listening().await;
    for (path, code) in [("/livez", 200), ("/readyz", 200), ("/version", 200), ("/metrics", 403)] {
        assert_eq!(head_over_http2(address, path, None).await.0, code, "{path}");
    }
}

#[tokio::test]
async fn refusal_with_an_unread_body_closes_an_http1_connection() {
    let (_chain, address) = listening().await;
    let answer = async |body: &str, token: &str| {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST {MAPS} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len().max(1)
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = vec![0; 1024];
        let length = stream.read(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer[..length]).to_lowercase()
    };
    let refused = answer("", "wrong").await;
    assert!(refused.starts_with("http/1.1 401") && refused.contains("connection: close"), "{refused}");
    let accepted = answer("{}", "secret").await;
    assert!(!accepted.contains("connection: close"), "{accepted}");
}
