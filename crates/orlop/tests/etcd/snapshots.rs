//! Snapshots by etcdctl, restored by `orlop etcd restore`.

use std::process::{Command, Output};

use orlop_testbed::Cluster;

use crate::process::{ORLOP, Orlop};

fn restore(from: &str, endpoint: &str) -> Output {
    Command::new(ORLOP).args(["etcd", "restore", from, "--endpoint", endpoint]).output().unwrap()
}

#[test]
fn restored_snapshot_equals_its_source() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let orlop = Orlop::on(&folder.path().join("old.db"));
    let ctl = orlop.ctl();
    for n in 0..50 {
        ctl.ok(&["put", &format!("k{}", n % 10), &n.to_string()]);
    }
    let before = ctl.json(&["get", "", "--prefix"]);
    ctl.ok(&["snapshot", "save", &path("saved")]);
    ctl.ok(&["put", "after", "x"]);
    orlop.kill();

    let restore = |from: &str, to: &str| restore(from, &format!("sqlite://{to}"));
    let restored = restore(&path("saved"), &path("new.db"));
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let orlop = Orlop::on(&folder.path().join("new.db"));
    assert_eq!(orlop.ctl().json(&["get", "", "--prefix"]), before);
    assert_eq!(orlop.ctl().ok(&["get", "k0", "--rev", "2"]), "k0\n0\n");

    let again = restore(&path("saved"), &path("new.db"));
    assert!(String::from_utf8_lossy(&again.stderr).contains("exists already"));
    let mut bytes = std::fs::read(path("saved")).unwrap();
    bytes[5000] ^= 1;
    std::fs::write(path("damaged"), bytes).unwrap();
    let damaged = restore(&path("damaged"), &path("other.db"));
    assert!(String::from_utf8_lossy(&damaged.stderr).contains("digest does not match"));
    assert!(!std::path::Path::new(&path("other.db")).exists());
}

#[test]
fn snapshot_restores_to_another_database() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let cluster = Cluster::start().unwrap();
    let database = || cluster.url(&cluster.create_database().unwrap());

    let orlop = Orlop::on(&folder.path().join("old.db"));
    let ctl = orlop.ctl();
    let granted = ctl.ok(&["lease", "grant", "1000"]);
    let lease = granted.split_whitespace().nth(1).unwrap();
    for n in 0..50 {
        ctl.ok(&["put", &format!("k{}", n % 10), &n.to_string()]);
    }
    ctl.ok(&["put", "held", "x", "--lease", lease]);
    ctl.ok(&["del", "k9"]);
    let before = ctl.json(&["get", "", "--prefix"]);
    ctl.ok(&["snapshot", "save", &path("from-sqlite")]);
    orlop.kill();

    // To PostgreSQL: history, leases and ids too.
    let postgres = database();
    let restored = restore(&path("from-sqlite"), &postgres);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let says = String::from_utf8_lossy(&restored.stdout).into_owned();
    assert!(says.contains("at revision 53"), "{says}");
    let orlop = Orlop::start(&["--endpoint", &postgres]);
    let ctl = orlop.ctl();
    assert_eq!(ctl.json(&["get", "", "--prefix"]), before);
    assert_eq!(ctl.ok(&["get", "k9", "--rev", "52"]), "k9\n49\n");
    assert!(ctl.ok(&["lease", "timetolive", lease, "--keys"]).contains("attached keys([held])"));
    ctl.ok(&["put", "after", "x"]);
    let later = ctl.json(&["get", "", "--prefix"]);
    ctl.ok(&["snapshot", "save", &path("from-postgres")]);
    let again = restore(&path("from-sqlite"), &postgres);
    assert!(!again.status.success(), "what is there is never overwritten");
    assert_eq!(ctl.json(&["get", "", "--prefix"]), later);
    drop(orlop);

    // And back.
    let endpoint = format!("sqlite://{}", path("new.db"));
    let restored = restore(&path("from-postgres"), &endpoint);
    assert!(restored.status.success(), "{}", String::from_utf8_lossy(&restored.stderr));
    let orlop = Orlop::on(&folder.path().join("new.db"));
    assert_eq!(orlop.ctl().json(&["get", "", "--prefix"]), later);
    assert_eq!(orlop.ctl().ok(&["get", "k9", "--rev", "52"]), "k9\n49\n");
}
