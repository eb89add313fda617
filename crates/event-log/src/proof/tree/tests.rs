use events::stored::leaf_hash;
use proptest::prelude::*;

use super::*;

/// The leaves that tests of Certificate Transparency publish.
const ENTRIES: [&str; 8] =
    ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"];
/// Their roots, for one leaf and up.
const ROOTS: [&str; 8] = [
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
];

fn bytes(text: &str) -> Hash {
    hex::decode(text).unwrap().try_into().unwrap()
}

fn published() -> Leaves {
    Leaves(ENTRIES.iter().map(|entry| leaf_hash(&hex::decode(entry).unwrap())).collect())
}

/// A reader that hashes leaves by the definition, again and again.
struct Leaves(Vec<Hash>);

impl HashReader for Leaves {
    type Error = ProofError;

    fn hash(&self, node: Node) -> Result<Hash, ProofError> {
        let first = usize::try_from(node.index << node.level).unwrap();
        Ok(definition(&self.0[first..first + (1 << node.level)]))
    }
}

impl Leaves {
    fn many(count: u64) -> Self {
        Self((0..count).map(|number| leaf_hash(&number.to_be_bytes())).collect())
    }

    fn inclusion(&self, index: u64, size: u64) -> Vec<Hash> {
        inclusion_proof(index, size, self).unwrap()
    }

    fn consistency(&self, old: u64, new: u64) -> Vec<Hash> {
        consistency_proof(old, new, self).unwrap()
    }

    fn root(&self, size: u64) -> Hash {
        definition(&self.0[..usize::try_from(size).unwrap()])
    }
}

fn half(count: usize) -> usize {
    let mut half = 1;
    while half * 2 < count {
        half *= 2;
    }
    half
}

/// MTH of RFC 6962, 2.1.
fn definition(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => empty_root(),
        [leaf] => *leaf,
        _ => {
            let (left, right) = leaves.split_at(half(leaves.len()));
            node_hash(&definition(left), &definition(right))
        }
    }
}

/// PATH of RFC 6962, 2.1.1.
fn path(index: usize, leaves: &[Hash]) -> Vec<Hash> {
    if leaves.len() == 1 {
        return Vec::new();
    }
    let (left, right) = leaves.split_at(half(leaves.len()));
    let (mut proof, sibling) =
        if index < left.len() { (path(index, left), right) } else { (path(index - left.len(), right), left) };
    proof.push(definition(sibling));
    proof
}

/// SUBPROOF of RFC 6962, 2.1.2.
fn subproof(old: usize, leaves: &[Hash], whole: bool) -> Vec<Hash> {
    if old == leaves.len() {
        return if whole { Vec::new() } else { vec![definition(leaves)] };
    }
    let (left, right) = leaves.split_at(half(leaves.len()));
    let (mut proof, sibling) = if old <= left.len() {
        (subproof(old, left, whole), right)
    } else {
        (subproof(old - left.len(), right, false), left)
    };
    proof.push(definition(sibling));
    proof
}

#[test]
fn the_published_roots_and_proofs() {
    let leaves = published();
    assert_eq!(
        hex::encode(root(0, &leaves).unwrap()),
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    );
    for (size, expected) in (1..).zip(ROOTS) {
        assert_eq!(hex::encode(root(size, &leaves).unwrap()), expected, "{size} leaves");
    }
    let hex = |proof: Vec<Hash>| proof.iter().map(hex::encode).collect::<Vec<_>>();
    let pair = "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0";
    let leaf_4 = "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b";
    assert_eq!(hex(leaves.inclusion(0, 1)), Vec::<String>::new());
    assert_eq!(hex(leaves.inclusion(5, 8)), [leaf_4, pair, ROOTS[3]]);
    assert_eq!(hex(leaves.inclusion(2, 3)), [ROOTS[1]]);
    assert_eq!(hex(leaves.consistency(1, 1)), Vec::<String>::new());
    assert_eq!(
        hex(leaves.consistency(6, 8)),
        ["0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a", pair, ROOTS[3]]
    );
    assert_eq!(
        hex(leaves.consistency(2, 5)),
        ["5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e", leaf_4]
    );
    let proof: Vec<Hash> = [leaf_4, pair, ROOTS[3]].map(bytes).to_vec();
    assert_eq!(verify_inclusion(&leaves.0[5], 5, 8, &proof, &bytes(ROOTS[7])), Ok(()));
}

#[test]
fn every_small_tree_is_proven_as_the_definition_says() {
    let leaves = Leaves::many(70);
    for size in 1..=70 {
        let root = leaves.root(size);
        let slice = &leaves.0[..usize::try_from(size).unwrap()];
        for index in 0..size {
            let proof = leaves.inclusion(index, size);
            assert_eq!(proof, path(usize::try_from(index).unwrap(), slice));
            let leaf = &slice[usize::try_from(index).unwrap()];
            assert_eq!(verify_inclusion(leaf, index, size, &proof, &root), Ok(()), "{index} of {size}");
        }
        for old in 1..=size {
            let proof = leaves.consistency(old, size);
            assert_eq!(proof, subproof(usize::try_from(old).unwrap(), slice, true));
            assert_eq!(
                verify_consistency(old, &leaves.root(old), size, &root, &proof),
                Ok(()),
                "{old} of {size}"
            );
        }
        assert_eq!(verify_consistency(0, &empty_root(), size, &root, &[]), Ok(()));
    }
}

#[test]
fn what_is_outside_of_the_tree_is_refused() {
    let leaves = Leaves::many(4);
    let root = leaves.root(4);
    assert_eq!(inclusion_nodes(4, 4), Err(ProofError::OutOfRange));
    assert_eq!(inclusion_nodes(0, 0), Err(ProofError::OutOfRange));
    assert_eq!(consistency_nodes(5, 4), Err(ProofError::OutOfRange));
    assert_eq!(verify_inclusion(&leaves.0[0], 4, 4, &[], &root), Err(ProofError::OutOfRange));
    assert_eq!(verify_consistency(5, &root, 4, &root, &[]), Err(ProofError::OutOfRange));
    assert_eq!(verify_consistency(0, &root, 4, &root, &[]), Err(ProofError::WrongRoot));
    assert_eq!(verify_consistency(4, &empty_root(), 4, &root, &[]), Err(ProofError::WrongRoot));
    assert_eq!(verify_consistency(3, &leaves.root(3), 4, &root, &[]), Err(ProofError::WrongLength));
    assert_eq!(verify_consistency(4, &root, 4, &root, &[root]), Err(ProofError::WrongLength));
    // The largest numbers overflow nothing.
    let endless = vec![root; 200];
    assert!(verify_inclusion(&root, u64::MAX - 1, u64::MAX, &endless, &root).is_err());
    assert!(verify_consistency(1 << 63, &root, u64::MAX, &root, &endless).is_err());
    assert!(verify_consistency(u64::MAX - 1, &root, u64::MAX, &root, &endless).is_err());
}

proptest! {
    #[test]
    fn a_proof_shows_nothing_else(size in 2_u64..300, a in any::<prop::sample::Index>(), b in any::<prop::sample::Index>(),
                                  place in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let leaves = Leaves::many(size);
        let root = leaves.root(size);
        let count = usize::try_from(size).unwrap();
        let (index, other) = (a.index(count), b.index(count));
        let (at, leaf) = (index as u64, leaves.0[index]);
        let proof = leaves.inclusion(at, size);
        prop_assert_eq!(verify_inclusion(&leaf, at, size, &proof, &root), Ok(()));
        // Another leaf, place, hash, length or root.
        if other != index {
            prop_assert!(verify_inclusion(&leaves.0[other], at, size, &proof, &root).is_err());
            prop_assert!(verify_inclusion(&leaf, other as u64, size, &proof, &root).is_err());
        }
        let mut changed = proof.clone();
        changed[place.index(proof.len())][7] ^= 1 << bit;
        prop_assert_eq!(verify_inclusion(&leaf, at, size, &changed, &root), Err(ProofError::WrongRoot));
        prop_assert_eq!(verify_inclusion(&leaf, at, size, &proof[1..], &root), Err(ProofError::WrongLength));
        let longer = [&proof[..], &[leaf]].concat();
        prop_assert_eq!(verify_inclusion(&leaf, at, size, &longer, &root), Err(ProofError::WrongLength));
        prop_assert!(verify_inclusion(&leaf, at, size, &proof, &leaf).is_err());

        let old = at.max(1);
        let old_root = leaves.root(old);
        let proof = leaves.consistency(old, size);
        prop_assert_eq!(verify_consistency(old, &old_root, size, &root, &proof), Ok(()));
        let mut changed = proof.clone();
        changed[place.index(proof.len())][7] ^= 1 << bit;
        prop_assert_eq!(verify_consistency(old, &old_root, size, &root, &changed), Err(ProofError::WrongRoot));
        prop_assert!(verify_consistency(old, &old_root, size, &root, &proof[1..]).is_err());
        prop_assert!(verify_consistency(old, &old_root, size, &root, &[&proof[..], &[leaf]].concat()).is_err());
        prop_assert!(verify_consistency(old, &root, size, &root, &proof).is_err());
        prop_assert!(verify_consistency(old, &old_root, size, &old_root, &proof).is_err());
    }
}
