//! `orlop etcd import` from a real etcd, and `orlop etcd export` back to it.

use std::process::{Command, Output};

use crate::{
    process::{Ctl, ORLOP, Orlop},
    support::peer::Peer,
};

fn orlop(arguments: &[&str]) -> Output {
    Command::new(ORLOP).arg("etcd").args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns keys and values, without revisions and leases, which differ between databases.
fn contents(ctl: &Ctl) -> String {
    ctl.ok(&["get", "", "--prefix"])
}

#[test]
fn key_space_is_imported_from_etcd_and_exported_back() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = format!("sqlite://{}", folder.path().join("state.db").display());
    let etcd = Peer::start(&[]).unwrap();
    let source = Ctl::new(&etcd.url);
    let granted = source.ok(&["lease", "grant", "1000"]);
    let lease = granted.split_whitespace().nth(1).unwrap().to_owned();
    // More than a page, in transactions of a hundred puts.
    for start in (0..2300).step_by(100) {
        let puts: String = (start..start + 100).map(|n| format!("put key/{n:05} value-{n}\n")).collect();
        source.ok_with(&["txn"], &format!("\n{puts}\n\n"));
    }
    source.ok(&["put", "held", "x", "--lease", &lease]);

    let first = said(&orlop(&["import", "--from", &etcd.url, "--endpoint", &endpoint]));
    assert!(first.contains("verified 2301 keys") && first.contains("2301 written"), "{first}");
    // Run again, it compares and writes only what has changed.
    source.ok(&["put", "key/00007", "changed"]);
    let again = said(&orlop(&["import", "--from", &etcd.url, "--endpoint", &endpoint]));
    assert!(again.contains("verified 2301 keys") && again.contains(" 1 written"), "{again}");
    source.ok(&["del", "key/00008"]);
    let extra = orlop(&["import", "--from", &etcd.url, "--endpoint", &endpoint]);
    assert!(String::from_utf8_lossy(&extra.stderr).contains("key/00008"), "{extra:?}");
    let deleted = said(&orlop(&["import", "--from", &etcd.url, "--endpoint", &endpoint, "--delete-extra"]));
    assert!(deleted.contains("1 deleted"), "{deleted}");

    let running = Orlop::start(&["--endpoint", &endpoint]);
    assert_eq!(contents(&running.ctl()), contents(&source));
    let held = running.ctl().ok(&["lease", "timetolive", &lease, "--keys"]);
    assert!(held.contains("TTL(1000s)") && held.contains("[held]"), "{held}");
    drop(running);

    let other = Peer::start(&[]).unwrap();
    let out = said(&orlop(&["export", "--to", &other.url, "--endpoint", &endpoint]));
    assert!(out.contains("verified 2300 keys"), "{out}");
    assert_eq!(contents(&Ctl::new(&other.url)), contents(&source));
}
