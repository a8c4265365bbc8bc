//! Histories of concurrent clients: each document is linearizable, whether it is read by `_id` or by an index,
//! and indexes agree with documents at the end.

mod checker;
#[cfg(feature = "rocks")]
mod crashes;
#[cfg(feature = "rocks")]
mod disk;
mod workload;

use std::sync::{Arc, atomic::AtomicBool};

use slate_client::{Client, Options, protocol::IndexDefinition};
use slate_server::{Server, config::Config};
use workload::{DOCUMENTS, History};

async fn create(client: &Client) {
    let indexes = vec![IndexDefinition::on("k"), IndexDefinition::on("v")];
    client.create_collection("c", indexes).await.expect("create");
}

fn check(history: &History) {
    for document in 0..DOCUMENTS {
        let operations = history.of(document);
        assert!(operations.len() > 100, "{} operations", operations.len());
        assert_eq!(checker::check(&operations, None), Ok(()), "document {document}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_document_is_linearizable_by_id_and_by_index() {
    let server = Server::start(Config::for_test()).await.expect("a server");
    let address = server.address().to_string();
    create(&Client::new(Options::new(address.as_str()))).await;
    let history = Arc::new(History::default());
    for seed in 0..3 {
        history.record(&address, seed, 150, &Arc::new(AtomicBool::new(false))).await;
    }
    check(&history);
    let validation = server.engine().validate("slate.c").expect("validate");
    assert_eq!(validation.faults, Vec::<String>::new());
    server.stop().await;
}
