//! Hostile input: nothing panics, everything is answered, nothing grows without bound.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod random_requests;
mod support;

use std::{
    fs,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use http::{Method, Request, header};
use http_body_util::{BodyExt, Full};
use orlop_api::protobuf;
use orlop_server::{
    Tokens, User,
    auth::issuer::Issuer,
    chain::Chain,
    cluster::Cluster,
    registry::Kinds,
    serve::{Timeouts, serve_with},
};
use orlop_store::{Config, Endpoint, Store};
use orlop_testbed::http2::{self, Peer};
use random_requests::RandomRequests;
use serde_json::{Value, json};
use support::{ask, config_map, create, get, server, whole};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const CASES: u64 = 4000;

/// Returns true if an error is a Status in any encoding, or one of the few plain texts.
fn is_proper(code: u16, media_type: &str, body: &[u8]) -> bool {
    let is_status = |status: &Value| status["kind"] == "Status" && status["code"] == code;
    match media_type {
        "application/json" => serde_json::from_slice(body).is_ok_and(|status| is_status(&status)),
        "application/yaml" => String::from_utf8_lossy(body).contains("kind: Status"),
        protobuf::MEDIA_TYPE => protobuf::decode(body).is_ok_and(|status| is_status(&status)),
        _ => code == 404 && body == b"404 page not found\n",
    }
}

#[tokio::test]
async fn random_requests_never_panic() {
    static PANICS: AtomicUsize = AtomicUsize::new(0);
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, SeqCst);
        usual(panic);
    }));
    let (chain, _store) = server().await;
    for name in ["a", "b"] {
        create(&chain, MAPS, &config_map(name, &json!({"app": "web"}))).await;
    }
    let mut refused = 0;
    for seed in 0..CASES {
        let mut nonsense = RandomRequests::new(seed);
        let Some(request) = nonsense.request() else { continue };
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let what = || format!("seed {seed}: {method} {uri}");
        let admin = User::master("admin");
        let answered = chain.answer(request.map(Full::new), Some(&admin));
        let response = tokio::time::timeout(Duration::from_secs(30), answered).await;
        let response = response.unwrap_or_else(|_| panic!("{} was not answered", what()));
        let (parts, body) = response.into_parts();
        let code = parts.status.as_u16();
        if code < 400 {
            // Only the start of a watch is read.
            let _ = tokio::time::timeout(Duration::from_millis(1), body.collect()).await;
            continue;
        }
        refused += 1;
        let body = body.collect().await.unwrap().to_bytes();
        let media_type = parts.headers.get(header::CONTENT_TYPE).map_or("", |value| value.to_str().unwrap());
        let text = String::from_utf8_lossy(&body);
        assert!(!text.contains("panic"), "{}: {text}", what());
        // The one error that Kubernetes answers with 500.
        let known = text.contains("resourceVersion should not be set on objects to be created");
        assert!(code != 500 || known, "{}: {text}", what());
        assert!(method == Method::HEAD || is_proper(code, media_type, &body), "{}: {code} {text}", what());
        assert_eq!(PANICS.load(SeqCst), 0, "{}", what());
    }
    assert!(refused > CASES / 4 && refused < CASES, "{refused} of {CASES} were refused");
    assert_eq!(get(&chain, "/readyz").await, (200, "ok".into()));
}

#[tokio::test]
async fn hostile_timeout_is_refused_before_authentication() {
    let (chain, _store) = server().await;
    // As long as a URI may be: a parser that recurses overflows its stack, which ends the process.
    for timeout in [format!("{}1s", "-".repeat(60_000)), "1s".repeat(30_000), "9".repeat(60_000)] {
        let request = Request::get(format!("/livez?timeout={timeout}")).body(Full::default()).unwrap();
        let (code, _, _) = whole(chain.answer(request, None).await).await;
        let expected = if timeout.starts_with("1s") { 200 } else { 400 };
        assert_eq!(code, expected, "{}", &timeout[..10]);
    }
}

#[tokio::test]
async fn oversized_body_returns_413() {
    let (chain, _store) = server().await;
    let headers = [("content-type", "application/json")];
    let (code, _, body) = whole(ask(&chain, "POST", MAPS, &headers, vec![b' '; (3 << 20) + 1]).await).await;
    let status: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!((code, status["reason"].as_str()), (413, Some("RequestEntityTooLarge")));
    assert_eq!(status["message"], "Request entity too large: limit is 3145728");
    let mut object = config_map("large", &json!({}));
    object["data"] = json!({"x": "y".repeat((1 << 20) + 1)});
    let (code, status) = support::call(&chain, "POST", MAPS, Some(&object)).await;
    assert_eq!(code, 422, "{status}");
}

#[tokio::test]
async fn unread_list_is_aborted() {
    let (chain, _store) = server().await;
    for number in 0..16 {
        let mut object = config_map(&format!("c{number}"), &json!({}));
        object["data"] = json!({"x": "y".repeat(200 << 10)});
        create(&chain, MAPS, &object).await;
    }
    let mut body = ask(&chain, "GET", MAPS, &[], "").await.into_body();
    // Paused time: the stall timeout passes at once.
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(70)).await;
    tokio::time::resume();
    let broken = loop {
        match body.frame().await {
            Some(Ok(_)) => {}
            other => break other.is_some(),
        }
    };
    assert!(broken, "the list ended as if that were all");
    let (_, whole) = get(&chain, MAPS).await;
    assert_eq!(whole["items"].as_array().unwrap().len(), 16);
}

/// Starts a server with short timeouts.
async fn impatient() -> SocketAddr {
    let store = Store::open(Config::new(Endpoint::Memory)).await.unwrap();
    let cluster = Arc::new(Cluster::new(store, Kinds::builtin(), Issuer::generate().unwrap()));
    let chain = Chain::new(cluster, Tokens::new(vec![("secret".to_owned(), User::master("admin"))]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let timeouts = Timeouts { headers: Duration::from_millis(300), ..Timeouts::default() };
    tokio::spawn(serve_with(timeouts, listener, chain, None, std::future::pending()));
    address
}

/// Returns everything that the server sends until it closes the connection.
async fn said(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    let read = tokio::time::timeout(Duration::from_secs(20), stream.read_to_end(&mut answer)).await;
    // A reset closes the connection too.
    let _ = read.expect("the server hangs up");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn unfinished_headers_close_the_connection() {
    let address = impatient().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let started = Instant::now();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\n").await.unwrap();
    let mut trickle = tokio::time::interval(Duration::from_millis(50));
    let (mut reading, mut writing) = stream.split();
    let mut answer = [0; 256];
    loop {
        tokio::select! {
            _ = trickle.tick() => if writing.write_all(b"x-a: b\r\n").await.is_err() { break },
            read = reading.read(&mut answer) => match read {
                Ok(0) | Err(_) => break,
                Ok(length) => assert!(String::from_utf8_lossy(&answer[..length]).contains(" 408 ")),
            },
        }
        assert!(started.elapsed() < Duration::from_secs(10), "the server goes on waiting");
    }
}

#[tokio::test]
async fn stalled_body_times_out() {
    let address = impatient().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "POST {MAPS}?timeout=300ms HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n\
         content-type: application/json\r\ncontent-length: 1000\r\nconnection: close\r\n\r\n{{\"kind\":"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = said(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 504 "), "{answer}");
    assert!(answer.contains("request did not complete within the allotted timeout"), "{answer}");
}

#[tokio::test]
async fn oversized_headers_and_malformed_requests_are_refused() {
    let address = impatient().await;
    let huge = format!("GET /readyz HTTP/1.1\r\nhost: x\r\nx-long: {}\r\n\r\n", "y".repeat(1 << 20));
    let many: String = (0..5000).map(|number| format!("x-{number}: y\r\n")).collect();
    let many = format!("GET /readyz HTTP/1.1\r\nhost: x\r\n{many}\r\n");
    for (request, code) in [
        (huge.as_bytes(), "431"),
        (many.as_bytes(), "431"),
        (b"\x16\x03\x01\x02\x00\x01\x00 a TLS hello, where there is no TLS\r\n\r\n", "400"),
        (b"nonsense\r\n\r\n", "400"),
        (b"GET /readyz HTTP/9.9\r\n\r\n", "400"),
        (b"GET /\xff\xfe HTTP/1.1\r\nhost: x\r\n\r\n", "400"),
    ] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let _ = stream.write_all(request).await;
        let _ = stream.shutdown().await;
        let answer = said(&mut stream).await;
        let short = String::from_utf8_lossy(&request[..request.len().min(40)]).into_owned();
        assert!(answer.is_empty() || answer.starts_with(&format!("HTTP/1.1 {code} ")), "{short:?}: {answer}");
    }
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(said(&mut stream).await.ends_with("ok"), "the server is well");
}

/// Returns the resident memory of this process in bytes.
fn resident() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[tokio::test]
async fn ten_thousand_idle_watches_cost_a_few_kilobytes_each() {
    const WATCHES: usize = 10_000;
    let (chain, _store) = server().await;
    let version = create(&chain, MAPS, &config_map("a", &json!({}))).await;
    let path = format!("{MAPS}?watch=1&allowWatchBookmarks=true&resourceVersion={version}");
    let open = || async {
        let request = Request::get(&path)
            .header(header::USER_AGENT, "controller/v1.2.3 (linux/amd64) kubernetes/abcdef")
            .header(header::ACCEPT, "application/json")
            .body(Full::<bytes::Bytes>::default())
            .unwrap();
        let response = chain.answer(request, Some(&User::master("admin"))).await;
        assert_eq!(response.status(), 200);
        response.into_body()
    };
    // Warms up shared allocations.
    let mut watches = Vec::with_capacity(WATCHES + 100);
    for _ in 0..100 {
        watches.push(open().await);
    }
    let before = resident();
    for _ in 0..WATCHES {
        watches.push(open().await);
    }
    let each = resident().saturating_sub(before) / WATCHES;
    println!("{WATCHES} idle watches: {each} bytes each");
    assert!(each < 16 << 10, "{each} bytes each");

    create(&chain, MAPS, &config_map("b", &json!({}))).await;
    for watch in &mut watches {
        let frame = tokio::time::timeout(Duration::from_secs(60), watch.frame()).await.expect("in time");
        let line = frame.unwrap().unwrap().into_data().unwrap();
        assert!(line.starts_with(b"{\"type\":\"ADDED\""));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_over_the_limit_are_refused() {
    const LIMIT: u32 = 1000;
    let address = impatient().await;
    let refused = tokio::task::spawn_blocking(move || {
        let socket = std::net::TcpStream::connect(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut rude = Peer::new(socket).unwrap();
        for number in 0..LIMIT + 3 {
            let mut fields = if number == 0 {
                http2::first_header_fields(MAPS, "x")
            } else {
                http2::HEADER_FIELDS.to_vec()
            };
            http2::put_field(&mut fields, "authorization", "Bearer secret");
            // The body never arrives, so that the stream stays open.
            rude.send(http2::HEADERS, http2::END_HEADERS, 2 * number + 1, &fields).unwrap();
        }
        let mut refused = Vec::new();
        let all = rude.until(|frame| {
            if frame.kind == http2::RST_STREAM && frame.number() == Some(http2::REFUSED_STREAM) {
                refused.push(frame.stream);
            }
            refused.len() == 3
        });
        assert!(all.unwrap(), "{refused:?}");
        refused
    });
    assert_eq!(refused.await.unwrap(), [2 * LIMIT + 1, 2 * LIMIT + 3, 2 * LIMIT + 5]);
    // The closed connection has released its permits.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    assert!(said(&mut stream).await.starts_with("HTTP/1.1 200 "));
}

/// Returns a request for one page with the administrator's token.
async fn page(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    said(&mut stream).await
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_bodies_hold_no_flow_control_permits() {
    const STREAMS: u32 = 900;
    let address = impatient().await;
    let rude = tokio::task::spawn_blocking(move || {
        let mut rude = Peer::new(std::net::TcpStream::connect(address).unwrap()).unwrap();
        for number in 0..STREAMS {
            let mut fields = if number == 0 {
                http2::first_header_fields(MAPS, "x")
            } else {
                http2::HEADER_FIELDS.to_vec()
            };
            http2::put_field(&mut fields, "authorization", "Bearer secret");
            http2::put_field(&mut fields, "content-length", "1000");
            rude.send(http2::HEADERS, http2::END_HEADERS, 2 * number + 1, &fields).unwrap();
        }
        rude
    });
    let _rude = rude.await.unwrap();
    let running = format!("apiserver_current_inflight_requests{{request_kind=\"mutating\"}} {STREAMS}");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !page(address, "/metrics").await.contains(&running) {
        assert!(Instant::now() < deadline, "not all of them have come");
    }
    let list = page(address, MAPS).await;
    assert!(list.starts_with("HTTP/1.1 200 ") && list.contains("ConfigMapList"), "{list}");
}
