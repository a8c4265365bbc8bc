//! Durability across restarts and kills.

use std::time::{Duration, Instant};

use crate::process::{Background, Orlop};

#[test]
fn acknowledged_writes_survive_a_kill_and_no_revision_is_reused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.db");
    let mut newest = 1;
    for round in 0..4 {
        let orlop = Orlop::on(&file);
        let ctl = orlop.ctl();
        for n in 0..5 {
            let revision =
                ctl.json(&["put", &format!("{round}/{n}"), "x"])["header"]["revision"].as_i64().unwrap();
            assert_eq!(revision, newest + 1);
            newest = revision;
        }
        orlop.kill();
    }
    let orlop = Orlop::on(&file);
    let got = orlop.ctl().json(&["get", "", "--prefix"]);
    assert_eq!((&got["count"], &got["header"]["revision"]), (&20.into(), &newest.into()));
}

#[test]
fn cluster_id_and_lease_ttl_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.db");
    let orlop = Orlop::on(&file);
    let id = orlop.ctl().json(&["get", "x"])["header"]["cluster_id"].clone();
    let begun = Instant::now();
    let granted = orlop.ctl().ok(&["lease", "grant", "8"]);
    let lease = granted.split_whitespace().nth(1).unwrap().to_owned();
    orlop.ctl().ok(&["put", "held", "x", "--lease", &lease]);
    orlop.kill();
    let orlop = Orlop::on(&file);
    let header = orlop.ctl().json(&["get", "held"]);
    assert_eq!((&header["header"]["cluster_id"], &header["count"]), (&id, &1.into()));
    while !orlop.ctl().ok(&["get", "held"]).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the lease never expires");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() >= Duration::from_secs(8), "the lease expired early");
}

#[test]
fn sigterm_stops_a_server_with_open_watches() {
    let orlop = Orlop::start(&["--endpoint", "memory"]);
    let ctl = orlop.ctl();
    ctl.ok(&["put", "k", "v"]);
    let mut watch = Background::start(&ctl, &["watch", "k", "--rev", "2"]);
    assert_eq!(watch.line(), "PUT");
    let begun = Instant::now();
    assert!(orlop.stop(), "it stops, and well");
    assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
}

#[test]
fn watch_resumes_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("state.db");
    let port = crate::support::peer::free_port().unwrap();
    let (address, endpoint) = (format!("127.0.0.1:{port}"), format!("sqlite://{}", file.display()));
    let arguments = ["--listen-address", &address, "--endpoint", &endpoint];
    let orlop = Orlop::start(&arguments);
    let ctl = orlop.ctl();
    ctl.ok(&["put", "k", "1"]);
    let mut watch = Background::start(&ctl, &["watch", "k", "--rev", "2"]);
    assert_eq!([watch.line(), watch.line(), watch.line()], ["PUT", "k", "1"]);
    orlop.kill();
    let _orlop = Orlop::start(&arguments);
    ctl.ok(&["put", "k", "2"]);
    assert_eq!([watch.line(), watch.line(), watch.line()], ["PUT", "k", "2"]);
}
