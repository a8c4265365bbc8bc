//! The Rust client: its pool, pipelines, transactions and time-outs.

use std::{net::TcpListener, time::Duration};

use bson::{Bson, doc};
use slate_client::{
    Client, Error, Options,
    protocol::{Doc, ErrorCode, Request, Response, Value},
};
use slate_server::{Server, config::Config};

/// Time within which what must happen happens.
const TIMEOUT: Duration = Duration::from_secs(60);

async fn start() -> Server {
    Server::start(Config::for_test()).await.expect("a server")
}

fn insert(id: i32) -> Request {
    let document = Doc::new(&doc! { "_id": id, "n": id }).expect("a document");
    Request::InsertOne { collection: "c".to_owned(), document }
}

fn find_by_id(id: i32) -> Request {
    Request::FindById { collection: "c".to_owned(), id: Value::new(Bson::Int32(id)).expect("a value") }
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_to_a_server_that_does_not_answer_time_out() {
    // The kernel accepts for it; nobody ever reads.
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let timeout = Duration::from_millis(50);
    let address = silent.local_addr().expect("an address").to_string();
    let client = Client::new(Options { timeout, ..Options::new(address.as_str()) });
    let (one, many) = (client.hello().await, client.pipeline(&[Request::Ping, Request::Ping]).await);
    assert!(matches!(one, Err(Error::TimedOut(after)) if after == timeout), "{one:?}");
    assert!(matches!(many, Err(Error::TimedOut(_))), "{many:?}");
    // A server with a token is greeted first, which is part of the call.
    let options = Options { timeout, token: Some("secret".to_owned()), ..Options::new(address) };
    let greeted = Client::new(options).collections().await;
    assert!(matches!(greeted, Err(Error::TimedOut(_))), "{greeted:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pool_opens_no_more_connections_than_it_may() {
    let server = start().await;
    let options = Options { connections: 3, ..Options::new(server.address().to_string()) };
    let client = Client::new(options);
    assert_eq!(server.open_connections(), 0, "nothing is connected before it is needed");
    let calls: Vec<_> = (0..30)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move { client.call(&Request::Ping).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.expect("a task").expect("an answer"), Response::Ok);
    }
    assert_eq!(server.open_connections(), 3);
    drop(client);
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    while server.open_connections() > 0 {
        assert!(tokio::time::Instant::now() < deadline, "connections of a dropped client stay open");
        tokio::task::yield_now().await;
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pipeline_answers_in_order_and_goes_on_after_an_error() {
    let server = start().await;
    let client = Client::new(Options::new(server.address().to_string()));
    client.create_collection("c", Vec::new()).await.expect("create");
    let requests: Vec<_> = (0..100).flat_map(|id| [insert(id), insert(id), find_by_id(id)]).collect();
    let responses = client.pipeline(&requests).await.expect("responses");
    assert_eq!(responses.len(), 300);
    for (id, answers) in (0..100).zip(responses.chunks(3)) {
        let ids = vec![Value::new(Bson::Int32(id)).expect("a value")];
        assert_eq!(answers[0].as_ref().expect("inserted"), &Response::Inserted { ids });
        let duplicate = answers[1].as_ref().expect_err("a duplicate");
        assert_eq!(duplicate.code(), Some(ErrorCode::DuplicateKey));
        let Ok(Response::Document { document: Some(found) }) = &answers[2] else { panic!("{answers:?}") };
        assert_eq!(found.decode().expect("BSON"), doc! { "_id": id, "n": id });
    }
    let found = client.find_by_ids("c", [5, 500, 7].map(Bson::Int32)).await.expect("documents");
    let ids: Vec<_> =
        found.iter().map(|found| found.as_ref().map(|found| found.get_i32("_id").expect("_id"))).collect();
    assert_eq!(ids, [Some(5), None, Some(7)]);
    assert!(client.pipeline(&[]).await.expect("nothing").is_empty());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_share_a_connection_get_their_own_answers() {
    let server = start().await;
    let options = Options { connections: 1, ..Options::new(server.address().to_string()) };
    let client = Client::new(options);
    client.create_collection("c", Vec::new()).await.expect("create");
    let documents: Vec<_> = (0..200).map(|id| doc! { "_id": id, "n": id * 2 }).collect();
    client.insert_many("c", &documents).await.expect("insert");
    let calls: Vec<_> = (0..200)
        .map(|id| {
            let client = client.clone();
            tokio::spawn(async move { client.find_by_id("c", Bson::Int32(id)).await })
        })
        .collect();
    for (id, call) in (0..200).zip(calls) {
        let found = call.await.expect("a task").expect("an answer").expect("a document");
        assert_eq!(found, doc! { "_id": id, "n": id * 2 });
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn transaction_is_all_or_nothing() {
    let server = start().await;
    let client = Client::new(Options::new(server.address().to_string()));
    client.create_collection("c", Vec::new()).await.expect("create");
    let done = client.transaction(vec![insert(1), insert(2)]).await.expect("a transaction");
    assert_eq!(done.len(), 2);
    let refused = client.transaction(vec![insert(3), insert(1)]).await.expect_err("a duplicate");
    assert_eq!(refused.code(), Some(ErrorCode::DuplicateKey));
    let refused = client.transaction(vec![insert(4), find_by_id(1)]).await.expect_err("a read");
    assert_eq!(refused.code(), Some(ErrorCode::Invalid));
    assert_eq!(client.count("c", &doc! {}).await.expect("count"), 2);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn client_connects_again_after_a_restart() {
    let first = start().await;
    let address = first.address();
    let client = Client::new(Options { connections: 1, ..Options::new(address.to_string()) });
    let (before, _) = client.hello().await.expect("hello");
    first.stop().await;
    assert!(matches!(client.hello().await, Err(Error::Connection { .. })), "nobody listens");
    let mut config = Config::for_test();
    config.addr = address;
    let second = Server::start(config).await.expect("a server");
    let deadline = tokio::time::Instant::now() + TIMEOUT;
    let after = loop {
        match client.hello().await {
            Ok((after, _)) => break after,
            // The end of the old connection may not have been noticed yet.
            Err(error) => assert!(tokio::time::Instant::now() < deadline, "{error}"),
        }
    };
    assert_ne!(before, after, "a new start has a new boot id");
    second.stop().await;
}
