//! Snapshots that etcdctl takes and orlop takes back.

use std::process::Command;

use crate::process::{ORLOP, Orlop};

#[test]
fn a_snapshot_brings_everything_back() {
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

    let restore = |from: &str, to: &str| {
        Command::new(ORLOP)
            .args(["etcd", "restore", from, "--endpoint", &format!("sqlite://{to}")])
            .output()
            .unwrap()
    };
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
