//! The rocks store on a disk that is full: writes are refused, reads go on, and service resumes with space.
//!
//! A small tmpfs mount stands in for the disk. Only root may mount one; for others the test is listed as
//! not run.

use std::time::{Duration, Instant};

use bson::{Bson, doc};
use orlop_testbed::Disk;
use slate_client::{Client, Options, protocol::ErrorCode};

use crate::crashes::Process;

#[tokio::test(flavor = "multi_thread")]
async fn full_disk_refuses_writes_and_service_resumes_with_space() {
    let folder = tempfile::tempdir().expect("a folder");
    let Some(disk) = Disk::mount(&folder.path().join("disk"), "64m") else { return };
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 40 << 20]).expect("ballast");
    let (data, ready) = (disk.path().join("data"), folder.path().join("ready"));
    let mut server = Process::start(&data, &ready);
    let options = Options { timeout: Duration::from_secs(60), ..Options::new(server.address.as_str()) };
    let client = Client::new(options);
    client.create_collection("c", Vec::new()).await.expect("create");
    // Text that does not compress.
    let text = |id: i32| -> String {
        (0..25_000_u64)
            .map(|n| format!("{:016x}", (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15 ^ id as u64)))
            .collect()
    };
    let mut acknowledged = Vec::new();
    let refused = loop {
        let id = i32::try_from(acknowledged.len()).expect("few");
        match client.insert("c", &doc! { "_id": id, "text": text(id) }).await {
            Ok(_) => acknowledged.push(id),
            Err(error) => break error,
        }
        assert!(acknowledged.len() < 200, "never full");
    };
    assert_eq!(refused.code(), Some(ErrorCode::Internal), "{refused}");
    assert!(refused.to_string().contains("No space left"), "{refused}");
    assert!(!acknowledged.is_empty());
    for id in &acknowledged {
        assert!(client.find_by_id("c", Bson::Int32(*id)).await.expect("reads go on").is_some(), "{id}");
    }
    // With space again, writes succeed without a restart.
    std::fs::remove_file(&ballast).expect("remove");
    let deadline = Instant::now() + Duration::from_secs(60);
    while let Err(error) = client.insert("c", &doc! { "_id": 1000 }).await {
        assert!(Instant::now() < deadline, "service does not resume: {error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    server.kill();
    let server = Process::start(&data, &ready);
    let client = Client::new(Options::new(server.address.as_str()));
    for id in acknowledged.into_iter().chain([1000]) {
        assert!(
            client.find_by_id("c", Bson::Int32(id)).await.expect("find").is_some(),
            "{id} was acknowledged"
        );
    }
}
