// Checks what the log has sealed with Debian's packages of the Go checksum database, which share no code with it. Reads one
// document from standard input, says what is wrong on standard error, and answers with notes that it has signed itself.
package main

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

type document struct {
	Secret, Public, Note, Origin string
	Leaves                       [][]byte
	Tiles                        []struct {
		Path         string
		Level, Width int
		Index        int64
		Data         []byte
	}
	Inclusions []struct {
		Size, Index int64
		Proof       [][]byte
	}
	Consistencies []struct {
		Old, New int64
		Proof    [][]byte
	}
}

type answer struct {
	Same   string // the note's text, signed with the log's own key
	Public string // a new key
	Other  string // the same text, signed with that one and with the log's
}

func check(err error, format string, values ...any) {
	if err != nil {
		fail("%s: %v", fmt.Sprintf(format, values...), err)
	}
}

func fail(format string, values ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", values...)
	os.Exit(1)
}

func hash(b []byte) (h tlog.Hash) {
	if copy(h[:], b) != len(h) || len(b) != len(h) {
		fail("a hash of %d bytes", len(b))
	}
	return h
}

func hashes(list [][]byte) []tlog.Hash {
	var hs []tlog.Hash
	for _, b := range list {
		hs = append(hs, hash(b))
	}
	return hs
}

// A reader of the tiles that the log serves, and of nothing else.
type tiles map[string][]byte

func (tiles) Height() int                     { return 8 }
func (tiles) SaveTiles([]tlog.Tile, [][]byte) {}
func (t tiles) ReadTiles(wanted []tlog.Tile) ([][]byte, error) {
	var all [][]byte
	for _, tile := range wanted {
		data, there := t[tile.Path()]
		if !there {
			return nil, fmt.Errorf("%s is not served", tile.Path())
		}
		all = append(all, data)
	}
	return all, nil
}

func main() {
	var d document
	check(json.NewDecoder(os.Stdin).Decode(&d), "the document")

	verifier, err := note.NewVerifier(d.Public)
	check(err, "the public key")
	signer, err := note.NewSigner(d.Secret)
	check(err, "the secret key")
	opened, err := note.Open([]byte(d.Note), note.VerifierList(verifier))
	check(err, "the note")
	lines := strings.Split(opened.Text, "\n")
	if len(lines) != 4 || lines[0] != d.Origin || verifier.Name() != d.Origin {
		fail("the text of the note: %q", opened.Text)
	}
	size, err := strconv.ParseInt(lines[1], 10, 64)
	check(err, "the size")
	rootBytes, err := base64.StdEncoding.DecodeString(lines[2])
	check(err, "the root")
	root := hash(rootBytes)

	// The whole tree anew from the leaves.
	var stored []tlog.Hash
	reader := tlog.HashReaderFunc(func(indexes []int64) ([]tlog.Hash, error) {
		var out []tlog.Hash
		for _, index := range indexes {
			if index >= int64(len(stored)) {
				return nil, fmt.Errorf("hash %d is not there", index)
			}
			out = append(out, stored[index])
		}
		return out, nil
	})
	for n, leaf := range d.Leaves {
		more, err := tlog.StoredHashesForRecordHash(int64(n), hash(leaf), reader)
		check(err, "leaf %d", n)
		stored = append(stored, more...)
	}
	treeHash := func(size int64) tlog.Hash {
		h, err := tlog.TreeHash(size, reader)
		check(err, "the root of %d leaves", size)
		return h
	}
	if size != int64(len(d.Leaves)) || treeHash(size) != root {
		fail("the signed root of %d leaves is not theirs", size)
	}

	served := tiles{}
	for _, t := range d.Tiles {
		tile := tlog.Tile{H: 8, L: t.Level, N: t.Index, W: t.Width}
		if strings.Replace(tile.Path(), "tile/8/", "tile/", 1) != t.Path {
			fail("%s is written %s", tile.Path(), t.Path)
		}
		data, err := tlog.ReadTileData(tile, reader)
		check(err, "%s", t.Path)
		if !bytes.Equal(data, t.Data) {
			fail("%s holds other hashes", t.Path)
		}
		served[tile.Path()] = t.Data
	}
	byTiles := tlog.TileHashReader(tlog.Tree{N: size, Hash: root}, served)
	if h, err := tlog.TreeHash(size, byTiles); err != nil || h != root {
		fail("the root by tiles: %v", err)
	}

	for _, p := range d.Inclusions {
		leaf, proof := hash(d.Leaves[p.Index]), hashes(p.Proof)
		check(tlog.CheckRecord(proof, p.Size, treeHash(p.Size), p.Index, leaf), "inclusion of %d in %d", p.Index, p.Size)
		if p.Size == size {
			own, err := tlog.ProveRecord(size, p.Index, byTiles)
			check(err, "an own proof of %d", p.Index)
			check(tlog.CheckRecord(own, size, root, p.Index, leaf), "an own proof of %d", p.Index)
		}
	}
	for _, p := range d.Consistencies {
		check(tlog.CheckTree(hashes(p.Proof), p.New, treeHash(p.New), p.Old, treeHash(p.Old)), "consistency of %d with %d", p.New, p.Old)
	}
	if len(d.Inclusions) == 0 || len(d.Consistencies) == 0 || len(d.Tiles) == 0 {
		fail("nothing was checked")
	}

	otherSecret, otherPublic, err := note.GenerateKey(rand.Reader, d.Origin)
	check(err, "a new key")
	other, err := note.NewSigner(otherSecret)
	check(err, "a new key")
	same, err := note.Sign(&note.Note{Text: opened.Text}, signer)
	check(err, "signing")
	both, err := note.Sign(&note.Note{Text: opened.Text}, other, signer)
	check(err, "signing with both")
	check(json.NewEncoder(os.Stdout).Encode(answer{string(same), otherPublic, string(both)}), "the answer")
}
