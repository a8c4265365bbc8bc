//! Port 9600, from a client's side.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{Arc, mpsc},
    time::Duration,
};

use bson::{Bson, doc};
use slate_client::{
    Client, Error, Options,
    protocol::{self, Doc, ErrorCode, Find, IndexDefinition, Request, Response, Value},
};
use slate_server::{Server, config::Config};

async fn start(change: impl FnOnce(&mut Config)) -> (Server, Client) {
    let mut config = Config::for_test();
    change(&mut config);
    let server = Server::start(config).await.expect("a server");
    let client = Client::new(Options::new(server.address().to_string()));
    (server, client)
}

fn doc_of(document: bson::Document) -> Doc {
    Doc::new(&document).expect("a document")
}

#[tokio::test(flavor = "multi_thread")]
async fn client_writes_and_reads_documents() {
    let (server, client) = start(|_| {}).await;
    let missing = client.insert("accounts", &doc! { "a": 1 }).await;
    assert_eq!(missing.expect_err("no collection").code(), Some(ErrorCode::NotFound));
    client.create_collection("accounts", vec![IndexDefinition::on("status")]).await.expect("create");
    let id = client.insert("accounts", &doc! { "status": "active", "n": 1 }).await.expect("insert");
    let documents: Vec<_> = (0..10).map(|n| doc! { "_id": n, "status": "idle", "n": n }).collect();
    assert_eq!(client.insert_many("accounts", &documents).await.expect("insert"), 10);
    let duplicate = client.insert_many("accounts", &[doc! { "_id": 77 }, doc! { "_id": 3 }]).await;
    assert_eq!(duplicate.expect_err("a duplicate").code(), Some(ErrorCode::DuplicateKey));
    assert_eq!(client.find_by_id("accounts", Bson::Int32(77)).await.expect("find"), None, "all or none");
    assert!(client.find_by_id("accounts", id).await.expect("find").is_some());
    assert_eq!(client.find("accounts", doc! { "status": "active" }).await.expect("find").len(), 1);
    let (matching, change) = (doc! { "n": { "$gte": 8 } }, doc! { "$set": { "status": "done" } });
    let updated = client.update_many("accounts", &matching, &change).await.expect("update");
    assert_eq!((updated.matched, updated.modified), (2, 2));
    assert_eq!(client.count("accounts", &doc! { "status": "done" }).await.expect("count"), 2);
    assert_eq!(client.delete_many("accounts", &doc! { "status": "done" }).await.expect("delete"), 2);
    let indexes = client.indexes("accounts").await.expect("indexes");
    assert_eq!((indexes.len(), indexes[0].definition.fields.as_slice()), (1, &["status".to_owned()][..]));
    let collections = client.collections().await.expect("collections");
    assert_eq!((collections[0].name.as_str(), collections[0].documents), ("accounts", 9));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_request_of_the_reference_is_answered() {
    let (server, client) = start(|_| {}).await;
    client.create_collection("c", Vec::new()).await.expect("create");
    let collection = || "c".to_owned();
    let update = |filter, change, upsert| protocol::Update {
        collection: collection(),
        filter: doc_of(filter),
        update: doc_of(change),
        upsert,
    };
    let docs = |ids: &[i32]| ids.iter().map(|id| doc_of(doc! { "_id": id, "a": id })).collect::<Vec<_>>();
    let find = |filter| Find { collection: collection(), filter: doc_of(filter), ..Find::default() };
    let call = async |request: Request| client.call(&request).await.expect("an answer");
    assert_eq!(
        call(Request::UpsertMany { collection: collection(), documents: docs(&[1, 2, 3]) }).await,
        Response::Upserted { inserted: 3, modified: 0 }
    );
    assert_eq!(
        call(Request::MergeMany {
            collection: collection(),
            documents: vec![doc_of(doc! { "_id": 1, "b": 1 })]
        })
        .await,
        Response::Upserted { inserted: 0, modified: 1 }
    );
    assert_eq!(
        call(Request::UpdateOne(update(doc! { "_id": 1 }, doc! { "$inc": { "a": 5 } }, false))).await,
        Response::Updated { matched: 1, modified: 1, upserted: None }
    );
    assert_eq!(
        call(Request::UpdateOne(update(doc! { "_id": 9 }, doc! { "$set": { "a": 5 } }, true))).await,
        Response::Updated {
            matched: 0,
            modified: 0,
            upserted: Some(Value::new(Bson::Int32(9)).expect("a value"))
        }
    );
    assert_eq!(
        call(Request::ReplaceOne(update(doc! { "_id": 2 }, doc! { "z": 1 }, false))).await,
        Response::Updated { matched: 1, modified: 1, upserted: None }
    );
    let Response::Document { document: Some(document) } = call(Request::FindOne(find(doc! { "z": 1 }))).await
    else {
        panic!("no document");
    };
    assert_eq!(document.decode().expect("BSON"), doc! { "_id": 2, "z": 1 });
    let Response::Values { values } =
        call(Request::Distinct { collection: collection(), field: "a".to_owned(), filter: Doc::default() })
            .await
    else {
        panic!("no values");
    };
    assert_eq!(values.len(), 3);
    assert_eq!(
        call(Request::DeleteOne { collection: collection(), filter: doc_of(doc! { "_id": 2 }) }).await,
        Response::Deleted { count: 1 }
    );
    let both = vec![
        Request::InsertOne { collection: collection(), document: doc_of(doc! { "_id": 50 }) },
        Request::InsertOne { collection: collection(), document: doc_of(doc! { "_id": 1 }) },
    ];
    let refused = client.call(&Request::Transaction { requests: both }).await.expect_err("a duplicate");
    assert_eq!(refused.code(), Some(ErrorCode::DuplicateKey));
    assert_eq!(client.count("c", &doc! { "_id": 50 }).await.expect("count"), 0, "a transaction is atomic");
    let Response::Explained { explanation } = call(Request::Explain(find(doc! { "_id": 1 }))).await else {
        panic!("no explanation");
    };
    assert!(explanation.decode().expect("BSON").contains_key("executionStats"));
    client.create_index("c", IndexDefinition::on("a"), false).await.expect("index");
    client.drop_index("c", "a_1").await.expect("drop");
    client.drop_collection("c").await.expect("drop");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_results_come_through_a_cursor() {
    let (server, client) = start(|_| {}).await;
    client.create_collection("c", Vec::new()).await.expect("create");
    let text = "x".repeat(2000);
    for chunk in 0..5 {
        let documents: Vec<_> = (0..1000).map(|n| doc! { "_id": chunk * 1000 + n, "text": &text }).collect();
        client.insert_many("c", &documents).await.expect("insert");
    }
    let all = client.find_with(Find { collection: "c".to_owned(), batch_size: 300, ..Find::default() });
    let all = all.await.expect("find");
    let ids: Vec<i32> = all.iter().map(|document| document.get_i32("_id").expect("an _id")).collect();
    assert_eq!(ids, (0..5000).collect::<Vec<_>>());
    let closed =
        client.call(&Request::GetMore { cursor: 12345, batch_size: 0 }).await.expect_err("no cursor");
    assert_eq!(closed.code(), Some(ErrorCode::NotFound));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_requests_are_answered_in_order() {
    let (server, client) = start(|_| {}).await;
    client.create_collection("c", Vec::new()).await.expect("create");
    let address = server.address();
    let ids = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address).expect("connect");
        let mut frames = Vec::new();
        for n in 0..500 {
            let insert =
                Request::InsertOne { collection: "c".to_owned(), document: doc_of(doc! { "_id": n }) };
            protocol::encode_frame(&insert, &mut frames).expect("a frame");
            let id = Value::new(Bson::Int32(n)).expect("a value");
            let find = Request::FindById { collection: "c".to_owned(), id };
            protocol::encode_frame(&find, &mut frames).expect("a frame");
        }
        stream.write_all(&frames).expect("write");
        (0..500)
            .map(|_| {
                assert!(matches!(read_response(&mut stream), Response::Inserted { .. }));
                let Response::Document { document: Some(document) } = read_response(&mut stream) else {
                    panic!("a read does not see the write before it");
                };
                document.decode().expect("BSON").get_i32("_id").expect("an _id")
            })
            .collect::<Vec<i32>>()
    });
    assert_eq!(ids.await.expect("ids"), (0..500).collect::<Vec<_>>());
    server.stop().await;
}

fn read_response(stream: &mut TcpStream) -> Response {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a length");
    let mut frame = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut frame).expect("a frame");
    protocol::decode(&frame).expect("a response")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn blocked_write_does_not_block_other_connections() {
    let (server, client) = start(|_| {}).await;
    client.create_collection("c", Vec::new()).await.expect("create");
    client.insert("c", &doc! { "_id": 1, "n": 0 }).await.expect("insert");
    let (engine, (began, has_begun), (end, ended)) =
        (server.engine().clone(), mpsc::channel(), mpsc::channel());
    let long = std::thread::spawn(move || {
        engine.write(move |_| {
            began.send(()).expect("the test");
            Ok(ended.recv())
        })
    });
    has_begun.recv().expect("the long write");

    let find = || {
        let id = Value::new(Bson::Int32(1)).expect("a value");
        Request::FindById { collection: "c".to_owned(), id }
    };
    let update = Request::UpdateOne(protocol::Update {
        collection: "c".to_owned(),
        filter: doc_of(doc! { "_id": 1 }),
        update: doc_of(doc! { "$inc": { "n": 1 } }),
        upsert: false,
    });
    let mut frames = Vec::new();
    for request in [find(), update, find()] {
        protocol::encode_frame(&request, &mut frames).expect("a frame");
    }
    let mut stream = TcpStream::connect(server.address()).expect("connect");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
    stream.write_all(&frames).expect("write");
    let n = |response: Response| match response {
        Response::Document { document: Some(document) } => {
            document.decode().expect("a document").get_i32("n").expect("n")
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(n(read_response(&mut stream)), 0, "what comes before the write is answered");
    for _ in 0..10 {
        assert!(client.find_by_id("c", Bson::Int32(1)).await.expect("find").is_some());
    }
    end.send(()).expect("the long write");
    assert!(matches!(read_response(&mut stream), Response::Updated { matched: 1, modified: 1, .. }));
    assert_eq!(n(read_response(&mut stream)), 1, "and what comes after it sees it");
    long.join().expect("a thread").expect("the long write").expect("the end");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn malformed_and_oversized_frames_are_rejected() {
    let (server, client) = start(|config| config.max_frame_bytes = 1 << 20).await;
    let address = server.address();
    tokio::task::spawn_blocking(move || {
        // A length of 4 GiB ends the connection at once.
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.write_all(&[0xff; 4]).expect("write");
        assert!(matches!(read_response(&mut stream), Response::Error { code: ErrorCode::TooLarge, .. }));
        assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
        // Bytes that are no request are answered, and the connection goes on.
        let mut stream = TcpStream::connect(address).expect("connect");
        stream.write_all(&[0, 0, 0, 3, 0xc1, 0xff, 0x00]).expect("write");
        assert!(matches!(read_response(&mut stream), Response::Error { code: ErrorCode::Invalid, .. }));
        let mut frame = Vec::new();
        protocol::encode_frame(&Request::Ping, &mut frame).expect("a frame");
        stream.write_all(&frame).expect("write");
        assert_eq!(read_response(&mut stream), Response::Ok);
        // Documents that are no BSON are refused.
        let mut frame = Vec::new();
        let insert = Request::InsertOne { collection: "c".to_owned(), document: Doc(vec![5, 0, 0, 0, 1]) };
        protocol::encode_frame(&insert, &mut frame).expect("a frame");
        stream.write_all(&frame).expect("write");
        assert!(matches!(read_response(&mut stream), Response::Error { code: ErrorCode::Invalid, .. }));
    })
    .await
    .expect("bad frames");
    assert!(client.hello().await.is_ok());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_are_limited_and_idle_ones_closed() {
    let (server, _) = start(|config| {
        config.max_connections = 2;
        config.idle_timeout_s = 1;
    })
    .await;
    let address = server.address();
    tokio::task::spawn_blocking(move || {
        let mut ping = Vec::new();
        protocol::encode_frame(&Request::Ping, &mut ping).expect("a frame");
        let mut open: Vec<_> = (0..2).map(|_| TcpStream::connect(address).expect("connect")).collect();
        for stream in &mut open {
            stream.write_all(&ping).expect("write");
            assert_eq!(read_response(stream), Response::Ok);
        }
        let mut third = TcpStream::connect(address).expect("connect");
        assert_eq!(third.read(&mut [0; 1]).unwrap_or(0), 0, "the third is closed");
        // The server closes the idle ones, which makes room.
        for stream in &mut open {
            stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a time-out");
            assert_eq!(stream.read(&mut [0; 1]).expect("the end"), 0);
        }
        let mut next = TcpStream::connect(address).expect("connect");
        next.write_all(&ping).expect("write");
        assert_eq!(read_response(&mut next), Response::Ok);
    })
    .await
    .expect("connections");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn port_requires_tls_and_a_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
    let (certificate, key, token) =
        (folder.path().join("tls.crt"), folder.path().join("tls.key"), folder.path().join("token"));
    std::fs::write(&certificate, made.cert.pem()).expect("write");
    std::fs::write(&key, made.signing_key.serialize_pem()).expect("write");
    std::fs::write(&token, "secret\n").expect("write");
    let (server, plain) = start(|config| {
        config.tls_cert = Some(certificate);
        config.tls_key = Some(key);
        config.token_file = Some(token);
    })
    .await;
    assert!(matches!(plain.hello().await, Err(Error::Connection { .. })), "plain text is refused");
    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).expect("a root");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = Some((Arc::new(tls), "localhost".to_owned()));
    let with_token = |token: Option<&str>| {
        let options = Options::new(server.address().to_string());
        Client::new(Options { tls: tls.clone(), token: token.map(ToOwned::to_owned), ..options })
    };
    let refused = |error: Error| assert_eq!(error.code(), Some(ErrorCode::Unauthenticated), "{error}");
    refused(with_token(None).collections().await.expect_err("no token"));
    refused(with_token(Some("wrong")).collections().await.expect_err("a wrong token"));
    assert!(with_token(Some("secret")).collections().await.is_ok());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn graceful_shutdown_drains_requests_and_removes_the_ready_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join("ready");
    let (server, client) = start(|config| config.ready_file.clone_from(&ready)).await;
    assert!(ready.exists(), "written after bind");
    client.create_collection("c", Vec::new()).await.expect("create");
    let address = server.address();
    let writers = tokio::spawn(async move {
        let mut acknowledged = 0;
        while client.insert("c", &doc! { "n": acknowledged }).await.is_ok() {
            acknowledged += 1;
        }
        acknowledged
    });
    let engine = server.engine().clone();
    while engine.document_count("slate.c").expect("count") < 50 {
        tokio::task::yield_now().await;
    }
    server.stop().await;
    let acknowledged = writers.await.expect("the writer");
    let stored = engine.document_count("slate.c").expect("count");
    assert!(stored >= acknowledged as u64 && stored <= acknowledged as u64 + 1, "{stored} {acknowledged}");
    assert!(!ready.exists());
    assert!(TcpStream::connect(address).is_err(), "nobody listens any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_ready_file_is_removed_before_the_server_starts() {
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join("ready");
    std::fs::write(&ready, "127.0.0.1:1\n").expect("write");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let mut config = Config::for_test();
    config.addr = taken.local_addr().expect("an address");
    config.ready_file.clone_from(&ready);
    assert!(Server::start(config.clone()).await.is_err(), "the port is taken");
    assert!(!ready.exists());

    drop(taken);
    let server = Server::start(config).await.expect("a server");
    let written = std::fs::read_to_string(&ready).expect("the file");
    assert_eq!(written, format!("{}\n", server.address()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ttl_index_expires_documents_in_the_background() {
    let (server, client) = start(|config| config.ttl_interval_s = 1).await;
    let ttl = IndexDefinition { expire_after_seconds: Some(3600), ..IndexDefinition::on("at") };
    client.create_collection("c", vec![ttl]).await.expect("create");
    let now = bson::DateTime::now().timestamp_millis();
    for (id, age_s) in [("old", 3700), ("new", 60)] {
        let at = bson::DateTime::from_millis(now - age_s * 1000);
        client.insert("c", &doc! { "_id": id, "at": at }).await.expect("insert");
    }
    let deadline = tokio::time::Instant::now() + Duration::from_secs(60);
    while client.count("c", &doc! {}).await.expect("count") > 1 {
        assert!(tokio::time::Instant::now() < deadline, "nothing expired");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(client.find_by_id("c", Bson::String("new".to_owned())).await.expect("find").is_some());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn index_built_in_the_background_shows_its_progress() {
    let (server, client) = start(|_| ()).await;
    client.create_collection("c", Vec::new()).await.expect("create");
    let documents: Vec<_> = (0..5000).map(|n| doc! { "_id": n, "n": n }).collect();
    client.insert_many("c", &documents).await.expect("insert");
    client.create_index("c", IndexDefinition::on("n"), true).await.expect("create");
    let (mut before, deadline) = (0, tokio::time::Instant::now() + Duration::from_secs(60));
    loop {
        let indexes = client.indexes("c").await.expect("indexes");
        let [index] = indexes.as_slice() else { panic!("{indexes:?}") };
        assert_eq!((index.total, index.indexed % 1000), (5000, 0), "in steps");
        assert!(index.indexed >= before, "{index:?} after {before}");
        if index.ready {
            assert_eq!(index.indexed, 5000);
            break;
        }
        before = index.indexed;
        assert!(tokio::time::Instant::now() < deadline, "{index:?}");
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_and_health_are_served_over_http() {
    let (server, client) = start(|config| config.http_addr = Some(([127, 0, 0, 1], 0).into())).await;
    client.create_collection("c", Vec::new()).await.expect("create");
    client.insert("c", &doc! { "n": 1 }).await.expect("insert");
    let address = server.http_address().expect("an address");
    let get = move |path: &str| {
        let mut stream = TcpStream::connect(address).expect("connect");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("write");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("an answer");
        text
    };
    let metrics = tokio::task::spawn_blocking(move || {
        assert!(get("/healthz").starts_with("HTTP/1.1 200"));
        get("/metrics")
    });
    let metrics = metrics.await.expect("metrics");
    assert!(metrics.contains("slate_documents 1"), "{metrics}");
    assert!(metrics.contains("request=\"insert_one\""), "{metrics}");
    server.stop().await;
}

#[test]
fn unknown_store_is_a_fatal_error_at_start() {
    let run = |store: &str| {
        let output = std::process::Command::new(env!("CARGO_BIN_EXE_slate-server"))
            .args(["--addr", "127.0.0.1:0", "--ready-file", "", "--data-dir", "/proc/nowhere"])
            .env("SLATE_STORE", store)
            .output()
            .expect("runs");
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (success, message) = run("rockz");
    assert!(!success && message.contains("rockz"), "{message}");
    let (success, message) = run("rocks");
    assert!(
        !success && message.contains("rocks"),
        "a store that cannot be opened is never replaced: {message}"
    );
}
