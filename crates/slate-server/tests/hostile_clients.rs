//! Clients that are slow, idle, greedy or send nonsense: they harm nobody but themselves.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use bson::{Bson, doc};
use proptest::{
    prelude::*,
    test_runner::{Config as ProptestConfig, TestRunner},
};
use slate_client::{
    Client, Options,
    protocol::{self, Doc, ErrorCode, Find, IndexDefinition, Request, Response, Update, Value},
};
use slate_server::{Server, config::Config};

/// Time within which a server must have closed a connection that it closes after a second.
const TIMEOUT: Duration = Duration::from_secs(30);

async fn start(change: impl FnOnce(&mut Config)) -> (Server, Client) {
    let mut config = Config::for_test();
    config.transfer_timeout_s = 1;
    change(&mut config);
    let server = Server::start(config).await.expect("a server");
    let client = Client::new(Options { connections: 1, ..Options::new(server.address().to_string()) });
    (server, client)
}

fn frame(request: &Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    protocol::encode_frame(request, &mut bytes).expect("a frame");
    bytes
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("connect");
    stream.set_read_timeout(Some(TIMEOUT)).expect("a time-out");
    stream
}

/// Reads until the server closes the connection. Returns the bytes.
fn read_to_end(stream: &mut TcpStream) -> usize {
    let (mut total, mut buffer) = (0, vec![0; 64 << 10]);
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return total,
            Ok(count) => total += count,
            Err(error) => {
                // A connection that is cut with data on its way is reset.
                let kind = error.kind();
                assert_eq!(
                    kind,
                    std::io::ErrorKind::ConnectionReset,
                    "the server does not close it: {error}"
                );
                return total;
            }
        }
    }
}

fn read_response(stream: &mut TcpStream) -> Response {
    let mut length = [0; 4];
    stream.read_exact(&mut length).expect("a length");
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut bytes).expect("a frame");
    protocol::decode(&bytes).expect("a response")
}

fn is_alive(address: SocketAddr) -> bool {
    let mut stream = connect(address);
    stream.write_all(&frame(&Request::Ping)).is_ok() && read_response(&mut stream) == Response::Ok
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_frame_times_out() {
    let (server, _) = start(|_| {}).await;
    let address = server.address();
    tokio::task::spawn_blocking(move || {
        let mut stalled = connect(address);
        stalled.write_all(&[0, 0, 1, 0, 0x81]).expect("write");
        // Each byte comes long before the idle time is over, but the frame as a whole never.
        let mut trickling = connect(address);
        trickling.write_all(&[0, 1, 0, 0]).expect("write");
        let began = Instant::now();
        while trickling.write_all(&[0]).is_ok() {
            assert!(began.elapsed() < TIMEOUT, "a trickling frame is never given up");
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(read_to_end(&mut stalled), 0);
        assert!(is_alive(address));
    })
    .await
    .expect("slow clients");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connection_with_unread_responses_times_out() {
    let (server, client) = start(|_| {}).await;
    client.create_collection("c", Vec::new()).await.expect("create");
    let text = "x".repeat(1 << 20);
    for id in 0..8 {
        client.insert("c", &doc! { "_id": id, "text": &text }).await.expect("insert");
    }
    let address = server.address();
    let greedy = tokio::task::spawn_blocking(move || {
        let mut stream = connect(address);
        let find = Request::Find(Find { collection: "c".to_owned(), ..Find::default() });
        // Half a gigabyte of answers is asked for, and none is taken for a while.
        let requests: Vec<u8> = (0..64).flat_map(|_| frame(&find)).collect();
        stream.write_all(&requests).expect("write");
        stream
    });
    let mut stream = greedy.await.expect("a client");
    let began = Instant::now();
    while server.open_connections() < 2 {
        assert!(began.elapsed() < TIMEOUT, "the slow client is not connected");
        tokio::task::yield_now().await;
    }
    // Others are served meanwhile, until the slow one is cut off.
    while server.open_connections() > 1 {
        assert!(client.find_by_id("c", Bson::Int32(3)).await.expect("find").is_some());
        assert!(began.elapsed() < TIMEOUT, "the slow client is never cut off");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let taken = tokio::task::spawn_blocking(move || read_to_end(&mut stream)).await.expect("a client");
    assert!(taken < 64 << 23, "{taken} bytes were answered");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unauthenticated_client_is_limited_to_small_frames() {
    let folder = tempfile::tempdir().expect("a folder");
    let token = folder.path().join("token");
    std::fs::write(&token, "secret").expect("write");
    let (server, _) = start(|config| config.token_file = Some(token)).await;
    let address = server.address();
    tokio::task::spawn_blocking(move || {
        let mut stream = connect(address);
        stream.write_all(&(1_u32 << 20).to_be_bytes()).expect("write");
        assert!(matches!(read_response(&mut stream), Response::Error { code: ErrorCode::TooLarge, .. }));
        let mut stream = connect(address);
        let hello = Request::Hello { version: protocol::VERSION, token: Some("secret".to_owned()) };
        stream.write_all(&frame(&hello)).expect("write");
        assert!(matches!(read_response(&mut stream), Response::Hello { .. }));
        let document = Doc::new(&doc! { "text": "x".repeat(1 << 20) }).expect("a document");
        stream
            .write_all(&frame(&Request::InsertOne { collection: "c".to_owned(), document }))
            .expect("write");
        assert!(matches!(read_response(&mut stream), Response::Error { code: ErrorCode::NotFound, .. }));
    })
    .await
    .expect("unauthenticated clients");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn large_requests_share_a_memory_limit() {
    let (server, client) = start(|config| {
        config.transfer_timeout_s = 30;
        config.max_frame_bytes = 2 << 20;
        config.max_intake_bytes = 2 << 20;
    })
    .await;
    client.create_collection("c", Vec::new()).await.expect("create");
    let address = server.address().to_string();
    let inserts: Vec<_> = (0..12)
        .map(|id| {
            let client = Client::new(Options { timeout: TIMEOUT, ..Options::new(address.as_str()) });
            tokio::spawn(async move {
                client.insert("c", &doc! { "_id": id, "text": "x".repeat(1_500_000) }).await
            })
        })
        .collect();
    for insert in inserts {
        insert.await.expect("a client").expect("insert");
    }
    assert_eq!(client.count("c", &doc! {}).await.expect("count"), 12);
    server.stop().await;
}

/// Requests of every kind, to be damaged.
fn requests() -> Vec<Vec<u8>> {
    let doc_of = |document: bson::Document| Doc::new(&document).expect("a document");
    let collection = || "c".to_owned();
    let filter = || {
        doc_of(
            doc! { "a": { "$in": [1, "x", null] }, "$or": [{ "b.c": { "$gt": 1.5 } }, { "d": { "$regex": "^x" } }] },
        )
    };
    let update = || Update {
        collection: collection(),
        filter: filter(),
        update: doc_of(
            doc! { "$set": { "a.b": [1, { "c": 2 }] }, "$push": { "t": { "$each": [1], "$slice": -2 } } },
        ),
        upsert: true,
    };
    let find = || Find {
        collection: collection(),
        filter: filter(),
        sort: doc_of(doc! { "a": -1 }),
        projection: doc_of(doc! { "a": 1 }),
        take: Some(3),
        ..Find::default()
    };
    [
        Request::Hello { version: 1, token: None },
        Request::Ping,
        Request::ListCollections,
        Request::CreateCollection { collection: collection(), indexes: vec![IndexDefinition::on("a.[]")] },
        Request::InsertOne {
            collection: collection(),
            document: doc_of(doc! { "a": [1, "x"], "b": { "c": 2.5 } }),
        },
        Request::InsertMany { collection: collection(), documents: vec![doc_of(doc! { "a": 1 }); 3] },
        Request::Find(find()),
        Request::Explain(find()),
        Request::FindById { collection: collection(), id: Value::new(Bson::Int32(1)).expect("a value") },
        Request::UpdateMany(update()),
        Request::ReplaceOne(update()),
        Request::DeleteMany { collection: collection(), filter: filter() },
        Request::Distinct { collection: collection(), field: "a".to_owned(), filter: filter() },
        Request::Transaction { requests: vec![Request::UpdateOne(update()), Request::Ping] },
        Request::GetMore { cursor: 1, batch_size: 1 },
    ]
    .iter()
    .map(frame)
    .collect()
}

/// A change of some bytes of a message.
fn damage() -> impl Strategy<Value = Vec<(u16, u8)>> {
    proptest::collection::vec((any::<u16>(), any::<u8>()), 0..6)
}

/// Sends damaged messages to a server, which must go on serving.
fn send_damaged(address: SocketAddr, messages: &[Vec<u8>], head: usize, is_alive: impl Fn() -> bool) {
    let case = (0..messages.len(), damage(), proptest::option::of(any::<u16>()), any::<bool>());
    let mut runner = TestRunner::new(ProptestConfig { cases: 400, ..ProptestConfig::default() });
    runner
        .run(&case, |(chosen, damage, cut, whole)| {
            let mut message = messages[chosen].clone();
            // Mostly the length stays right, or little beyond it would be looked at.
            let from = if whole { 0 } else { head };
            for (place, byte) in damage {
                let place = from + usize::from(place) % (message.len() - from).max(1);
                if let Some(target) = message.get_mut(place) {
                    *target = byte;
                }
            }
            if let Some(cut) = cut {
                message.truncate(usize::from(cut) % (message.len() + 1));
            }
            let mut stream = connect(address);
            // The server may close it before all is written.
            let _ = stream.write_all(&message);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            read_to_end(&mut stream);
            Ok(())
        })
        .expect("damaged messages");
    assert!(is_alive());
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_requests_leave_the_server_serving() {
    let (server, client) = start(|_| {}).await;
    client.create_collection("c", vec![IndexDefinition::on("a")]).await.expect("create");
    let address = server.address();
    let send = move || send_damaged(address, &requests(), 4, || is_alive(address));
    tokio::task::spawn_blocking(send).await.expect("damaged requests");
    let validation = server.engine().validate("slate.c");
    assert_eq!(validation.map(|validation| validation.faults).unwrap_or_default(), Vec::<String>::new());
    server.stop().await;
}

/// A message of MongoDB's protocol.
fn op_msg(body: &bson::Document) -> Vec<u8> {
    let mut message = vec![0; 4];
    message.extend([1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0, 0, 0, 0, 0, 0]);
    body.to_writer(&mut message).expect("BSON");
    let length = i32::try_from(message.len()).expect("short").to_le_bytes();
    message[..4].copy_from_slice(&length);
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_mongo_messages_leave_the_server_serving() {
    let (server, _) = start(|config| config.mongo_addr = Some(([127, 0, 0, 1], 0).into())).await;
    let address = server.mongo_address().expect("an address");
    let bodies = [
        doc! { "hello": 1, "$db": "admin" },
        doc! { "insert": "c", "documents": [{ "_id": 1, "a": [1, 2] }], "$db": "test" },
        doc! { "find": "c", "filter": { "a": { "$elemMatch": { "$gt": 1 } } }, "sort": { "a": 1 }, "$db": "test" },
        doc! { "update": "c", "updates": [{ "q": { "a": 1 }, "u": { "$inc": { "n": 1 } }, "upsert": true }], "$db": "test" },
        doc! { "aggregate": "c", "pipeline": [{ "$unwind": "$a" }, { "$group": { "_id": "$a", "n": { "$sum": 1 } } }], "cursor": {}, "$db": "test" },
        doc! { "createIndexes": "c", "indexes": [{ "key": { "a": 1 }, "name": "a_1" }], "$db": "test" },
        doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": "n,,n=slate,r=abc", "$db": "admin" },
        doc! { "getMore": 7_i64, "collection": "c", "$db": "test" },
    ];
    let messages: Vec<Vec<u8>> = bodies.iter().map(op_msg).collect();
    let ping = op_msg(&doc! { "ping": 1, "$db": "admin" });
    let is_alive = move || {
        let mut stream = connect(address);
        stream.write_all(&ping).is_ok() && stream.read(&mut [0; 16]).is_ok_and(|count| count > 0)
    };
    let send = move || send_damaged(address, &messages, 4, is_alive);
    tokio::task::spawn_blocking(send).await.expect("damaged messages");
    server.stop().await;
}

/// A server in a process of its own, so that its descriptors can be counted.
struct Process(std::process::Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn closed_connections_leave_no_descriptors_behind() {
    const OF_EACH: usize = 50;
    let folder = tempfile::tempdir().expect("a folder");
    let ready = folder.path().join("ready");
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_slate-server"))
        .args(["--addr", "127.0.0.1:0", "--ready-file"])
        .arg(&ready)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("slate-server");
    let server = Process(child);
    let deadline = Instant::now() + Duration::from_secs(60);
    let wait_for = |probe: &dyn Fn() -> bool| {
        while !probe() {
            assert!(Instant::now() < deadline, "timed out");
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let written = || std::fs::read_to_string(&ready).is_ok_and(|text| text.ends_with('\n'));
    wait_for(&written);
    let address = std::fs::read_to_string(&ready).expect("the ready file");
    let connect = || TcpStream::connect(address.trim_end()).expect("connect");
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", server.0.id())).expect("descriptors").count();
    let before = descriptors();
    // Some say nothing, some half a length, some half a frame, some a length beyond the limit.
    let beginnings: [&[u8]; 4] = [&[], &[0, 0], &[0, 0, 0, 9, 0x81], &[0xff; 4]];
    for beginning in beginnings.iter().cycle().take(OF_EACH * beginnings.len()) {
        // The server may be faster to close.
        let _ = connect().write_all(beginning);
    }
    // Threads that start with the first connections have descriptors of their own, which stay.
    wait_for(&|| descriptors() < before + OF_EACH / 2);
}
